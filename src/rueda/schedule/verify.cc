#include "rueda/schedule/verify.h"

#include <algorithm>
#include <bit>
#include <set>

#include "rueda/schedule/blocks.h"
#include "rueda/schedule/first_write.h"
#include "rueda/schedule/verify_parts.h"

namespace rueda::schedule {
namespace {

// In place of a formula: any formula that contains every rank once.
constexpr Expr kAnyOrder = kUnwritten;

// A run of the output: its formula and the index of its first element.
struct Expected {
  int64_t begin = 0, count = 0;
  Expr expr = kAnyOrder;
  int64_t element = 0;
};

struct Claim {
  const Spec& spec;
  const Topology& topology;
  bool is_order_preserving;
};

std::vector<Expected> expected_of(const Claim& claim, Rank rank, Expressions& expressions) {
  const Spec& spec = claim.spec;
  const Rank n = claim.topology.size();
  const auto reduced = [&] {
    return claim.is_order_preserving ? canonical(spec, claim.topology, expressions) : kAnyOrder;
  };
  switch (spec.what) {
    case Collective::kAllreduce: {
      if (spec.wire == Wire::kExact) return {{0, spec.count, reduced(), 0}};
      const Blocks blocks = Blocks::of_counts(spec.counts);
      std::vector<Expected> runs;
      for (Rank owner = 0; owner < n; ++owner)
        runs.push_back({blocks.begin(owner), blocks.count(owner),
                        canonical_encoded(claim.topology, owner, expressions), blocks.begin(owner)});
      return runs;
    }
    case Collective::kReducescatter: {
      const Blocks blocks = Blocks::of_counts(spec.counts);
      return {{0, blocks.count(rank), reduced(), blocks.begin(rank)}};
    }
    case Collective::kBroadcast:
      return {{0, spec.count, expressions.leaf(spec.root), 0}};
    case Collective::kAllgather: {
      const Blocks blocks = Blocks::of_counts(spec.counts);
      std::vector<Expected> runs;
      for (Rank from = 0; from < n; ++from)
        runs.push_back({blocks.begin(from), blocks.count(from), expressions.leaf(from), 0});
      return runs;
    }
    case Collective::kAlltoall: {
      std::vector<Expected> runs;
      int64_t at = 0;
      for (Rank from = 0; from < n; ++from) {
        const auto row = spec.counts.begin() + static_cast<int64_t>(from) * n;
        int64_t element = 0;
        for (Rank to = 0; to < rank; ++to) element += row[to];
        runs.push_back({at, row[rank], expressions.leaf(from), element});
        at += row[rank];
      }
      return runs;
    }
    default:
      return {};
  }
}

Status wrong(const Claim& claim, Rank rank, int64_t place, const std::string& why) {
  return {Code::kInternal, std::string(name_of(claim.spec.what)) + ": output element " +
                               std::to_string(place) + " of rank " + std::to_string(rank) + " " + why};
}

bool has_every_rank_once(const std::vector<Rank>& ranks, Rank n) {
  for (Rank rank = 0; rank < n; ++rank)
    if (static_cast<Rank>(ranks.size()) != n || ranks[rank] != rank) return false;
  return true;
}

Status check_run(const Claim& claim, Rank rank, const Expected& want, const Extent& got,
                 Expressions& expressions) {
  const int64_t place = want.begin + got.offset;
  if (got.cell.expr == kUnwritten) return wrong(claim, rank, place, "is never written");
  if (got.element != want.element + got.offset) return wrong(claim, rank, place, "holds another element");
  const Expr raw = expressions.unfinished(got.cell.expr);
  if (is_reduction(claim.spec.what) && got.cell.expr != expressions.finish(raw))
    return wrong(claim, rank, place, "was not finished");
  if (want.expr == kAnyOrder) {
    if (!has_every_rank_once(expressions.ranks_in(raw), claim.topology.size()))
      return wrong(claim, rank, place,
                   "does not contain every contribution exactly once: " + expressions.to_string(raw));
  } else if (raw != want.expr) {
    return wrong(claim, rank, place,
                 "is " + expressions.to_string(raw) + " instead of " + expressions.to_string(want.expr));
  }
  return Status::ok();
}

Status check_outputs(const Claim& claim, SymbolicExecution& execution, Expressions& expressions) {
  IntervalMap<Expr> first;  // of rank 0: the other ranks must get the same bits
  for (Rank rank = 0; rank < claim.topology.size(); ++rank) {
    for (const Expected& want : expected_of(claim, rank, expressions)) {
      for (const Extent& got : execution.memory(rank).read(output(want.begin, want.count))) {
        if (Status status = check_run(claim, rank, want, got, expressions); !status.is_ok()) return status;
        if (claim.spec.what != Collective::kAllreduce) continue;
        const int64_t begin = want.begin + got.offset;
        if (rank == 0) first.assign(begin, begin + got.count, got.cell.expr);
        bool is_equal = true;
        first.visit(begin, begin + got.count,
                    [&](int64_t, int64_t, Expr e) { is_equal &= e == got.cell.expr; });
        if (!is_equal) return wrong(claim, rank, begin, "differs from rank 0's");
      }
    }
  }
  return Status::ok();
}

// A barrier carries no data, only knowledge: a message tells which ranks its sender certainly knew to have
// arrived. Ranks learn in rounds until no rank learns more. Then every rank must know of all ranks.
Status check_barrier(std::span<const Schedule> schedules) {
  const size_t n = schedules.size();
  std::vector<Ancestors> ancestors(schedules.begin(), schedules.end());
  std::vector<std::vector<std::set<size_t>>> known(n);  // [rank][step]: carried by this message
  for (size_t rank = 0; rank < n; ++rank) known[rank].resize(schedules[rank].steps.size(), {rank});
  bool has_learnt = true;
  while (has_learnt) {
    has_learnt = false;
    for (size_t rank = 0; rank < n; ++rank) {
      std::vector<size_t> next_from(n, 0);  // how many messages of each peer were looked at
      const auto& steps = schedules[rank].steps;
      for (size_t i = 0; i < steps.size(); ++i) {
        auto& mine = known[rank][i];
        const size_t before = mine.size();
        for (size_t earlier = 0; earlier < i; ++earlier)
          if (ancestors[rank].precedes(earlier, i))
            mine.insert(known[rank][earlier].begin(), known[rank][earlier].end());
        if (steps[i].kind == StepKind::kRecv) {
          const auto peer = static_cast<size_t>(steps[i].peer);
          size_t skip = next_from[peer]++;
          for (size_t j = 0; j < schedules[peer].steps.size(); ++j) {
            const Step& theirs = schedules[peer].steps[j];
            if (theirs.kind != StepKind::kSend || theirs.peer != static_cast<Rank>(rank) || skip-- > 0)
              continue;
            mine.insert(known[peer][j].begin(), known[peer][j].end());
            break;
          }
        }
        has_learnt |= mine.size() > before;
      }
    }
  }
  for (size_t rank = 0; rank < n; ++rank) {
    std::set<size_t> all{rank};
    for (const auto& some : known[rank]) all.insert(some.begin(), some.end());
    if (all.size() != n)
      return {Code::kInternal,
              "BARRIER: rank " + std::to_string(rank) + " leaves before it knows of all ranks"};
  }
  return Status::ok();
}

RankTotals totals_of(const Spec& spec, const Schedule& schedule) {
  RankTotals totals{.steps = static_cast<int64_t>(schedule.steps.size())};
  for (const Step& step : schedule.steps) {
    if (step.kind != StepKind::kSend) continue;
    ++totals.messages_sent;
    if (step.wire == WireType::kEncoded) {
      totals.bytes_sent += step.from.count / kWireBlock * wire_block_bytes(spec.wire);
      continue;
    }
    const DType type = step.wire == WireType::kElement ? spec.dtype : accumulator_of(spec.dtype);
    totals.bytes_sent += step.from.count * static_cast<int64_t>(size_of(type));
  }
  return totals;
}

}  // namespace

Expr canonical(const Spec& spec, const Topology& topology, Expressions& expressions) {
  if (spec.op == ReduceOp::kAdasum) {
    std::vector<Expr> level;
    for (Rank rank = 0; rank < topology.size(); ++rank) level.push_back(expressions.leaf(rank));
    while (level.size() > 1) {
      std::vector<Expr> next;
      for (size_t i = 0; i < level.size(); i += 2)
        next.push_back(i + 1 < level.size() ? expressions.adasum(level[i], level[i + 1]) : level[i]);
      level = std::move(next);
    }
    return level.front();
  }
  std::vector<Expr> level;  // the hosts' sums, then ever fewer ones of neighbours
  for (const auto& host : topology.members()) {
    Expr sum = kUnwritten;
    for (Rank rank : host) {
      const Expr leaf = expressions.leaf(rank);
      sum = sum == kUnwritten ? leaf : expressions.combine(sum, leaf);
    }
    level.push_back(sum);
  }
  // First the pairs that reduce the number to a power of two, then all.
  const auto hosts = static_cast<uint32_t>(level.size());
  for (size_t pairs = hosts - std::bit_floor(hosts); level.size() > 1; pairs = level.size() / 2) {
    if (pairs == 0) pairs = level.size() / 2;
    std::vector<Expr> next;
    for (size_t i = 0; i < pairs; ++i) next.push_back(expressions.combine(level[2 * i], level[2 * i + 1]));
    next.insert(next.end(), level.begin() + static_cast<std::ptrdiff_t>(2 * pairs), level.end());
    level = std::move(next);
  }
  return level.front();
}

Expr canonical_encoded(const Topology& topology, Rank owner, Expressions& expressions) {
  const std::vector<std::vector<Rank>> hosts = topology.members();
  const std::vector<Rank>& home = hosts[topology.host_of[owner]];
  const auto place = std::ranges::find(home, owner) - home.begin();
  Expr total = kUnwritten;
  for (const std::vector<Rank>& host : hosts) {
    Expr sum = expressions.leaf(host.front());
    for (size_t i = 1; i < host.size(); ++i) sum = expressions.combine(sum, expressions.leaf(host[i]));
    const Rank entry = host[static_cast<size_t>(place) % host.size()];
    const Expr part = expressions.encoded(sum, entry);
    total = total == kUnwritten ? part : expressions.combine(total, part);
  }
  return expressions.encoded(total, owner);
}

Result<Report> verify_schedules(const Spec& spec, const Topology& topology,
                                std::span<const Schedule> schedules, bool is_order_preserving) {
  const Rank n = topology.size();
  if (Status status = check_spec(spec, n); !status.is_ok()) return status;
  if (static_cast<Rank>(schedules.size()) != n)
    return Status{Code::kInvalidArgument, "the verifier needs one schedule for each rank"};
  Report report;
  for (Rank rank = 0; rank < n; ++rank) {
    const Schedule& schedule = schedules[rank];
    if (Status status = check_form(spec, n, rank, schedule); !status.is_ok()) return status;
    if (n == 2 && spec.what == Collective::kAllreduce && !hears_before_writing(schedule))
      return Status{Code::kInternal, "ALLREDUCE: rank " + std::to_string(rank) +
                                         " of two overwrites its input before it has heard from the other"};
    const Ancestors ancestors(schedule);
    for (const bool is_aliased : {false, true}) {
      if (is_aliased && !may_alias(spec.what)) continue;
      if (Status status = check_races(rank, schedule, ancestors, is_aliased); !status.is_ok()) return status;
    }
    report.ranks.push_back(totals_of(spec, schedule));
  }
  const Claim claim{.spec = spec, .topology = topology, .is_order_preserving = is_order_preserving};
  for (const bool is_aliased : {false, true}) {
    if (is_aliased && !may_alias(spec.what)) continue;
    Expressions expressions(spec);
    SymbolicExecution execution(spec, schedules, is_aliased, expressions);
    if (Status status = execution.run(); !status.is_ok()) return status;
    if (Status status = check_outputs(claim, execution, expressions); !status.is_ok()) return status;
    report.rounds = execution.rounds();
  }
  if (spec.what == Collective::kBarrier)
    if (Status status = check_barrier(schedules); !status.is_ok()) return status;
  return report;
}

Result<Report> verify(const Spec& spec, const Topology& topology, const Algorithm& algorithm) {
  if (Status status = check_spec(spec, topology.size()); !status.is_ok()) return status;
  std::vector<Schedule> schedules;
  for (Rank rank = 0; rank < topology.size(); ++rank)
    schedules.push_back(algorithm.build(spec, topology, rank));
  return verify_schedules(spec, topology, schedules, is_order_preserving(algorithm, topology));
}

}  // namespace rueda::schedule
