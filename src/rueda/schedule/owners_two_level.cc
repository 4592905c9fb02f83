#include <algorithm>

#include "rueda/base/check.h"
#include "rueda/schedule/owners.h"

namespace rueda::schedule {

TwoLevelOwners::TwoLevelOwners(Builder& builder, const OwnerCall& call)
    : builder_(builder), call_(call), hosts_(call.topology.members()) {
  const Rank n = call.topology.size();
  local_index_.resize(n);
  for (const auto& host : hosts_)
    for (size_t i = 0; i < host.size(); ++i) local_index_[host[i]] = static_cast<int32_t>(i);
  duty_.assign(n, -1);
  int32_t duties = 0;
  for (Rank owner = 0; owner < n; ++owner)
    if (entry(call.topology.host_of[call.me], owner) == call.me) duty_[owner] = duties++;
  if (!is_reduction(call.spec.what)) return;
  slot_ = std::min(call.chunks.chunk_elements, call.blocks.largest());
  levels_ = reduction_levels(static_cast<int32_t>(hosts_.size()));
  sums_ = builder_.scratch(levels_ * kSlots * slot_);
  if (my_host().size() > 1) partials_ = builder_.scratch(duties * kSlots * slot_);
}

// The owners of one host are spread over the ranks of each other host.
Rank TwoLevelOwners::entry(int32_t host, Rank owner) const {
  const auto& ranks = hosts_[host];
  return ranks[local_index_[owner] % static_cast<int32_t>(ranks.size())];
}

bool TwoLevelOwners::is_in_my_host(Rank rank) const {
  return call_.topology.host_of[rank] == call_.topology.host_of[call_.me];
}

Slice TwoLevelOwners::chunk_of(Rank owner, int64_t round, Buffer buffer) const {
  return call_.chunks.of({buffer, call_.blocks.begin(owner), call_.blocks.count(owner)}, round);
}

// A host with one rank has nothing to reduce. Its partial sum is the input itself, which is sent as elements.
Slice TwoLevelOwners::partial_of(Rank owner, int64_t round) const {
  const Slice own = chunk_of(owner, round, Buffer::kInput);
  if (my_host().size() == 1) return own;
  RUEDA_CHECK(duty_[owner] >= 0, "only an entry has the partial of its host");
  return part(partials_, (duty_[owner] * kSlots + round % kSlots) * slot_, own.count);
}

void TwoLevelOwners::contribute(int64_t round) {
  const auto& host = my_host();
  const auto ranks = static_cast<int32_t>(host.size());
  for (int32_t distance = 1; distance < ranks; ++distance) {
    const Rank to = host[mod(local_index_[call_.me] - distance, ranks)];
    for (Rank owner = 0; owner < call_.topology.size(); ++owner)
      if (entry(call_.topology.host_of[call_.me], owner) == to)
        builder_.send(to, chunk_of(owner, round, Buffer::kInput));
  }
}

void TwoLevelOwners::reduce_in_host(int64_t round) {
  if (my_host().size() == 1) return;
  for (Rank owner = 0; owner < call_.topology.size(); ++owner) {
    const Slice own = chunk_of(owner, round, Buffer::kInput);
    if (duty_[owner] < 0 || own.count == 0) continue;
    std::vector<Operand> operands;
    for (Rank rank : my_host())
      operands.push_back(rank == call_.me ? mine(own) : from_peer(rank, WireType::kElement));
    reduce_operands(builder_, call_.spec.op, operands, partial_of(owner, round));
  }
}

void TwoLevelOwners::exchange(int64_t round) {
  const Rank n = call_.topology.size();
  for (Rank distance = 1; distance < n; ++distance) {
    const Rank owner = mod(call_.me - distance, n);
    if (duty_[owner] >= 0 && !is_in_my_host(owner)) builder_.send(owner, partial_of(owner, round));
  }
}

void TwoLevelOwners::reduce_hosts(int64_t round, const Slice& result) {
  const Slice to = call_.chunks.of(result, round);
  if (to.count == 0) return;
  std::vector<std::vector<Operand>> operands;
  for (int32_t host = 0; host < static_cast<int32_t>(hosts_.size()); ++host) {
    const Rank from = entry(host, call_.me);
    const WireType wire = hosts_[host].size() == 1 ? WireType::kElement : WireType::kAccumulator;
    operands.push_back({from == call_.me ? mine(partial_of(call_.me, round)) : from_peer(from, wire)});
  }
  ReductionScratch scratch = reduction_scratch(sums_, levels_, slot_, round, to.count);
  if (can_accumulate_in_output(call_.spec)) scratch.last_to = to;
  builder_.deliver(to, reduce_host_operands(builder_, call_.spec.op, operands, scratch));
}

void TwoLevelOwners::share(int64_t round, const Slice& result) {
  const Slice mine = call_.chunks.of(result, round);
  const auto& host = my_host();
  const auto ranks = static_cast<int32_t>(host.size());
  const auto hosts = static_cast<int32_t>(hosts_.size());
  const int32_t here = call_.topology.host_of[call_.me];
  for (int32_t distance = 1; distance < hosts; ++distance)
    builder_.send(entry(mod(here - distance, hosts), call_.me), mine);
  for (int32_t distance = 1; distance < ranks; ++distance)
    builder_.send(host[mod(local_index_[call_.me] - distance, ranks)], mine);
}

void TwoLevelOwners::forward(int64_t round) {
  for (Rank owner : my_host())
    if (owner != call_.me) builder_.recv(owner, chunk_of(owner, round, Buffer::kOutput));
  for (Rank owner = 0; owner < call_.topology.size(); ++owner) {
    if (is_in_my_host(owner)) continue;
    const Slice to = chunk_of(owner, round, Buffer::kOutput);
    const bool is_entry = duty_[owner] >= 0;
    builder_.recv(is_entry ? owner : entry(call_.topology.host_of[call_.me], owner), to);
    if (!is_entry) continue;
    for (Rank rank : my_host())
      if (rank != call_.me) builder_.send(rank, to);
  }
}

}  // namespace rueda::schedule
