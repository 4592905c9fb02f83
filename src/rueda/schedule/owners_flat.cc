#include "rueda/schedule/owners.h"

#include <algorithm>

namespace rueda::schedule {

ReductionScratch reduction_scratch(const Slice& sums, int32_t levels, int64_t slot, int64_t round,
                                   int64_t count) {
  ReductionScratch scratch;
  for (int32_t level = 0; level < levels; ++level)
    scratch.levels.push_back(sums.count > 0 ? part(sums, (level * kSlots + round % kSlots) * slot, count)
                                            : Slice{});
  return scratch;
}

FlatOwners::FlatOwners(Builder& builder, const OwnerCall& call)
    : builder_(builder), call_(call), hosts_(call.topology.members()) {
  for (const auto& host : hosts_) order_.insert(order_.end(), host.begin(), host.end());
  my_place_ = std::find(order_.begin(), order_.end(), call.me) - order_.begin();
  if (!is_reduction(call.spec.what) || order_.size() == 1) return;
  slot_ = std::min(call.chunks.chunk_elements, call.blocks.count(call.me));
  levels_ = reduction_levels(hosts_);
  sums_ = builder_.scratch(levels_ * kSlots * slot_);
}

Rank FlatOwners::at_distance(int64_t distance) const {
  return order_[mod(my_place_ - distance, static_cast<int32_t>(order_.size()))];
}

// Between hosts, at most one round of sends is in flight. Because the order of peers is rotated, few senders
// then share the link of a receiver. Inside a host no link is shared, and a limit would only add waiting.
void FlatOwners::pace(StepId send) {
  if (send == kNoStep || hosts_.size() == 1) return;
  if (in_flight_.size() + 1 >= order_.size() && in_flight_.size() >= 2) {
    builder_.order(send, in_flight_.front());
    in_flight_.pop_front();
  }
  in_flight_.push_back(send);
}

void FlatOwners::contribute(int64_t round) {
  for (int64_t distance = 1; distance < call_.topology.size(); ++distance) {
    const Rank owner = at_distance(distance);
    const Slice block = input(call_.blocks.begin(owner), call_.blocks.count(owner));
    pace(builder_.send(owner, call_.chunks.of(block, round)));
  }
}

void FlatOwners::reduce(int64_t round, const Slice& result) {
  const Slice block = input(call_.blocks.begin(call_.me), call_.blocks.count(call_.me));
  const Slice own = call_.chunks.of(block, round);
  const Slice to = call_.chunks.of(result, round);
  if (own.count == 0) return;
  std::vector<std::vector<Operand>> operands;
  for (const auto& host : hosts_) {
    operands.emplace_back();
    for (Rank rank : host)
      operands.back().push_back(rank == call_.me ? mine(own) : from_peer(rank, WireType::kElement));
  }
  ReductionScratch scratch = reduction_scratch(sums_, levels_, slot_, round, own.count);
  if (can_accumulate_in_output(call_.spec)) scratch.last_to = to;
  builder_.deliver(to, reduce_host_operands(builder_, call_.spec.op, operands, scratch));
}

void FlatOwners::share(int64_t round, const Slice& result) {
  const Slice mine = call_.chunks.of(result, round);
  const auto n = static_cast<int64_t>(order_.size());
  for (int64_t distance = 1; distance < n; ++distance) pace(builder_.send(at_distance(distance), mine));
  for (int64_t distance = 1; distance < n; ++distance) {
    const Rank owner = at_distance(-distance);
    const Slice block = output(call_.blocks.begin(owner), call_.blocks.count(owner));
    builder_.recv(owner, call_.chunks.of(block, round));
  }
}

}  // namespace rueda::schedule
