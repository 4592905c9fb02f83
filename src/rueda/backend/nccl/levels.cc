#include "rueda/backend/nccl/levels.h"

#include <algorithm>
#include <utility>

#include "rueda/base/check.h"

namespace rueda::nccl {
namespace {

std::string sizes_text(const std::vector<std::vector<Rank>>& hosts) {
  constexpr size_t kListed = 8;
  std::string text;
  for (size_t i = 0; i < hosts.size() && i < kListed; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(hosts[i].size());
  return text + (hosts.size() > kListed ? ", …" : "");
}

Group part_of_group(const Group& whole, const std::vector<Rank>& chosen) {
  Group part{.id = whole.id, .epoch = whole.epoch, .members = {}};
  for (const Rank member : chosen) {
    if (member == whole.me) part.me = part.size();
    part.members.push_back(whole.members[static_cast<size_t>(member)]);
  }
  return part;
}

// What the last member reduces, or broadcasts, besides its even share.
struct Division {
  size_t even = 0, left_over = 0;  // elements
};
Division division_of(int64_t count, Rank n) {
  return {static_cast<size_t>(count / n), static_cast<size_t>(count % n)};
}

}  // namespace

LevelsOrReason levels_of(const Group& group, const schedule::Topology& topology) {
  RUEDA_CHECK(topology.size() == group.size() && group.is_member(), "a topology is that of its group");
  const std::vector<std::vector<Rank>> hosts = topology.members();
  if (hosts.size() < 2 || topology.size() == static_cast<Rank>(hosts.size())) return {};
  const auto is_like_first = [&](const auto& host) { return host.size() == hosts.front().size(); };
  if (!std::ranges::all_of(hosts, is_like_first))
    return {std::nullopt,
            "a hierarchical allreduce needs equally many ranks on every host, but the hosts have " +
                sizes_text(hosts) + "."};
  const auto my_host = static_cast<size_t>(topology.host_of[static_cast<size_t>(group.me)]);
  Levels levels{.inside = part_of_group(group, hosts[my_host]), .between = {}};
  std::vector<Rank> like_me;
  for (const auto& host : hosts) like_me.push_back(host[static_cast<size_t>(levels.inside.me)]);
  std::ranges::sort(like_me);
  levels.between = part_of_group(group, like_me);
  return {std::move(levels), {}};
}

backend::ElementRange share_of(int64_t count, Rank me, Rank n) {
  const int64_t even = count / n;
  return {.begin = me * even, .count = even + (me == n - 1 ? count % n : 0)};
}

std::vector<Step> reducing_steps_of(const schedule::Spec& spec, const DeviceRun& run, Rank me, Rank n) {
  const auto type = reduced_type(spec.dtype);
  const auto op = reduced_op(spec.op);
  RUEDA_CHECK(type && op, "NCCL does not reduce such a call");
  const auto [even, left_over] = division_of(run.count, n);
  const size_t share_bytes = even * size_of(spec.dtype);
  const auto members = static_cast<size_t>(n);
  std::vector<Step> steps;
  if (even > 0)
    steps.push_back({Function::kReduceScatter, run.input, run.output + static_cast<size_t>(me) * share_bytes,
                     even, *type, *op, 0});
  if (left_over > 0)
    steps.push_back({Function::kReduce, run.input + members * share_bytes,
                     me == n - 1 ? run.output + members * share_bytes : nullptr, left_over, *type, *op,
                     n - 1});
  return steps;
}

std::vector<Step> gathering_steps_of(const schedule::Spec& spec, const DeviceRun& run, Rank me, Rank n) {
  const auto [even, left_over] = division_of(run.count, n);
  const size_t element = size_of(spec.dtype);
  const size_t share_bytes = even * element;
  const auto members = static_cast<size_t>(n);
  std::vector<Step> steps;  // what is not reduced moves as bytes
  if (even > 0)
    steps.push_back({Function::kAllGather, run.output + static_cast<size_t>(me) * share_bytes, run.output,
                     share_bytes, kUint8, kSum, 0});
  if (left_over > 0) {
    std::byte* const rest = run.output + members * share_bytes;
    steps.push_back({Function::kBroadcast, rest, rest, left_over * element, kUint8, kSum, n - 1});
  }
  return steps;
}

}  // namespace rueda::nccl
