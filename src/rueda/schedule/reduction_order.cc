#include "rueda/schedule/reduction_order.h"

#include <algorithm>

#include "rueda/base/check.h"
#include "rueda/schedule/hypercube.h"

namespace rueda::schedule {
namespace {

class HostTree {
 public:
  HostTree(Builder& builder, ReduceOp op, const std::vector<std::vector<Operand>>& hosts,
           const ReductionScratch& scratch)
      : builder_(builder),
        op_(op),
        hosts_(hosts),
        scratch_(scratch),
        cube_(static_cast<Rank>(hosts.size())) {}

  Operand all() { return corners(0, cube_.size, 0, scratch_.last_to); }

 private:
  // The left part stays at its level while the right part is computed one level further down.
  Operand corners(int32_t first, int32_t count, size_t level, std::optional<Slice> last_to) {
    if (count == 1) return corner(first, level, last_to);
    const Operand left = corners(first, count / 2, level, {});
    const Operand right = corners(first + count / 2, count / 2, level + 1, {});
    const Slice& slot = scratch_.levels[level];
    return combine(builder_, op_, left, right, {.to = last_to.value_or(slot), .recv_slice = slot});
  }

  Operand corner(int32_t corner, size_t level, std::optional<Slice> last_to) {
    const Rank host = cube_.rank_at(corner);
    if (!cube_.takes_one_in(host)) return of_host(host, level, last_to);
    const Operand left = of_host(host - 1, level, {});
    const Operand right = of_host(host, level + 1, {});
    const Slice& slot = scratch_.levels[level];
    return combine(builder_, op_, left, right, {.to = last_to.value_or(slot), .recv_slice = slot});
  }

  Operand of_host(Rank host, size_t level, std::optional<Slice> last_to) {
    if (hosts_[host].size() == 1) return hosts_[host].front();
    return reduce_operands(builder_, op_, hosts_[host], scratch_.levels[level], last_to);
  }

  Builder& builder_;
  ReduceOp op_;
  const std::vector<std::vector<Operand>>& hosts_;
  const ReductionScratch& scratch_;
  Hypercube cube_;
};

}  // namespace

bool is_commutative(ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kProduct; }

Slice arrived(Builder& builder, const Operand& operand, const Slice& recv_slice) {
  if (operand.is_mine()) return operand.own;
  builder.recv(operand.peer, recv_slice, operand.wire);
  return recv_slice;
}

Operand combine(Builder& builder, ReduceOp op, const Operand& left, const Operand& right,
                const CombineTarget& where) {
  if (right.is_mine() && !left.is_mine() && is_commutative(op)) {
    builder.recv_reduce(left.peer, where.to, right.own, left.wire);
    return mine(where.to);
  }
  const Slice mine_left = arrived(builder, left, where.recv_slice);
  if (right.is_mine())
    builder.reduce(where.to, mine_left, right.own);
  else
    builder.recv_reduce(right.peer, where.to, mine_left, right.wire);
  return mine(where.to);
}

Operand reduce_operands(Builder& builder, ReduceOp op, const std::vector<Operand>& operands,
                        const Slice& scratch, std::optional<Slice> last_to) {
  RUEDA_CHECK(!operands.empty(), "a reduction needs an operand");
  Operand sum = operands.front();
  for (size_t i = 1; i < operands.size(); ++i) {
    const Slice& to = i + 1 == operands.size() ? last_to.value_or(scratch) : scratch;
    sum = combine(builder, op, sum, operands[i], {.to = to, .recv_slice = scratch});
  }
  return sum;
}

int32_t reduction_levels(const std::vector<std::vector<Rank>>& hosts) {
  const bool has_several = std::ranges::any_of(hosts, [](const auto& host) { return host.size() > 1; });
  const auto count = static_cast<int32_t>(hosts.size());
  return has_several ? ceil_log2(floor_power_of_two(count)) + 1 : reduction_levels(count);
}

int32_t reduction_levels(int32_t hosts) { return std::max(1, ceil_log2(floor_power_of_two(hosts))); }

Slice reduce_host_operands(Builder& builder, ReduceOp op, const std::vector<std::vector<Operand>>& hosts,
                           const ReductionScratch& scratch) {
  const Operand sum = HostTree(builder, op, hosts, scratch).all();
  return sum.is_mine() ? sum.own : arrived(builder, sum, scratch.levels.front());
}

}  // namespace rueda::schedule
