// Two-level allreduce with a wire type: exact inside hosts, encoded between them. Each rank owns whole
// blocks. Inside each host one rank (the entry) reduces the contributions to a block in rank order and
// encodes the sum once; the owner decodes the sums of all hosts, its own included, adds them in the order of
// the hosts, encodes the result once, and all ranks, the owner included, decode these bytes. So all ranks get
// equal bits, and each value is rounded twice, whatever the number of hosts. Bytes between hosts, per host, H
// hosts: 2 (H-1)/H of the encoded size. At most one round of messages to the other hosts is in flight, in an
// order that is rotated from rank to rank, so that few senders share the port of a receiver.
#include <deque>

#include "rueda/schedule/algorithms.h"
#include "rueda/schedule/cost.h"
#include "rueda/schedule/owners.h"

namespace rueda::schedule {
namespace allreduce_encoded {
namespace {

double encoded_bytes(const Spec& spec, int64_t elements) {
  return static_cast<double>(elements / kWireBlock * wire_block_bytes(spec.wire));
}

std::optional<double> cost_us(const Spec& spec, const Topology& topology) {
  if (spec.wire == Wire::kExact || topology.is_single_host()) return std::nullopt;
  const int32_t hosts = topology.host_count();
  const int32_t locals = largest_host(topology);
  const int64_t block = Blocks::of_counts(spec.counts).largest();
  const double bytes = bytes_of(spec, block), encoded = encoded_bytes(spec, block);
  const double in_host = phase_us(
      topology, {.local_messages = (locals - 1.0) * hosts, .local_bytes = (locals - 1.0) * hosts * bytes});
  const double between = phase_us(topology, {.remote_messages = hosts - 1.0,
                                             .remote_bytes = (hosts - 1) * encoded,
                                             .streams = locals,
                                             .senders = hosts - 1});
  return 2 * in_host + 2 * between + reduce_us(topology, bytes * hosts * (locals + 3));
}

// Whole blocks, about as many as the chunks of other algorithms hold.
Chunks plan_chunks(const Spec& spec, const Topology& topology, const Blocks& blocks) {
  Chunks chunks = Chunks::plan(spec, topology, blocks.largest(), 6 * topology.size());
  chunks.chunk_elements = (chunks.chunk_elements + kWireBlock - 1) / kWireBlock * kWireBlock;
  chunks.rounds =
      std::max<int64_t>(1, (blocks.largest() + chunks.chunk_elements - 1) / chunks.chunk_elements);
  return chunks;
}

// For timelines and descriptions.
std::string_view name_of_schedule(Wire wire) {
  switch (wire) {
    case Wire::kBfloat16:
      return "encoded_bf16";
    case Wire::kFloat16:
      return "encoded_fp16";
    case Wire::kInt8:
      return "encoded_int8";
    case Wire::kExact:
      break;
  }
  return "encoded";
}

class Stages {
 public:
  Stages(Builder& builder, const OwnerCall& call)
      : builder_(builder),
        call_(call),
        owners_(builder, call),
        parts_(builder.wire(call.spec.count)),
        results_(builder.wire(call.spec.count)),
        arrived_(builder.wire(static_cast<int64_t>(owners_.hosts().size()) * call.blocks.count(call.me))) {}

  void contribute(int64_t round) { owners_.contribute(round); }
  void reduce_in_host(int64_t round) { owners_.reduce_in_host(round); }

  // As an entry: encodes the sums of my host, and sends them to their owners in other hosts.
  void exchange(int64_t round) {
    const Rank n = call_.topology.size();
    for (Rank distance = 0; distance < n; ++distance) {
      const Rank owner = mod(call_.me - distance, n);
      if (!owners_.is_entry_of(owner)) continue;
      const Slice encoded = place_of(owner, round, parts_);
      builder_.encode(encoded, owners_.partial_of(owner, round));
      if (!owners_.is_in_my_host(owner)) pace(builder_.send(owner, encoded));
    }
  }

  // Adds what all hosts have sent for my blocks, and encodes the sum.
  void reduce_hosts(int64_t round) {
    const Slice result = place_of(call_.me, round, results_);
    if (result.count == 0) return;
    const Slice sum = owners_.sum_of(round, result.count);
    const int64_t mine = call_.blocks.count(call_.me);
    for (int32_t host = 0; host < static_cast<int32_t>(owners_.hosts().size()); ++host) {
      const Rank from = owners_.entry(host, call_.me);
      Slice encoded = place_of(call_.me, round, parts_);
      if (from != call_.me) {
        encoded = call_.chunks.of(part(arrived_, host * mine, mine), round);
        builder_.recv(from, encoded, WireType::kEncoded);
      }
      if (host == 0)
        builder_.copy(sum, encoded);
      else
        builder_.reduce(sum, sum, encoded);
    }
    builder_.encode(result, sum);
  }

  // Sends my result to the entries of the other hosts and to the ranks of mine.
  void share(int64_t round) {
    const Slice mine = place_of(call_.me, round, results_);
    const auto hosts = static_cast<int32_t>(owners_.hosts().size());
    const auto ranks = static_cast<int32_t>(owners_.my_host().size());
    const int32_t here = call_.topology.host_of[call_.me];
    for (int32_t distance = 1; distance < hosts; ++distance)
      pace(builder_.send(owners_.entry(mod(here - distance, hosts), call_.me), mine));
    for (int32_t distance = 1; distance < ranks; ++distance)
      builder_.send(owners_.my_host()[mod(owners_.my_place() - distance, ranks)], mine);
    deliver(call_.me, round);
  }

  // Receives the results of the others; as an entry, passes them on inside my host.
  void forward(int64_t round) {
    for (Rank owner : owners_.my_host()) {
      if (owner == call_.me) continue;
      builder_.recv(owner, place_of(owner, round, results_), WireType::kEncoded);
      deliver(owner, round);
    }
    for (Rank owner = 0; owner < call_.topology.size(); ++owner) {
      if (owners_.is_in_my_host(owner)) continue;
      const bool is_entry = owners_.is_entry_of(owner);
      const Slice to = place_of(owner, round, results_);
      builder_.recv(is_entry ? owner : owners_.entry(call_.topology.host_of[call_.me], owner), to,
                    WireType::kEncoded);
      for (Rank rank : owners_.my_host())
        if (is_entry && rank != call_.me) builder_.send(rank, to);
      deliver(owner, round);
    }
  }

 private:
  // A chunk of an owner's blocks in a part of the wire buffer that has the layout of the call.
  [[nodiscard]] Slice place_of(Rank owner, int64_t round, const Slice& area) const {
    Slice chunk = owners_.chunk_of(owner, round, Buffer::kWire);
    chunk.begin += area.begin;
    return chunk;
  }
  void deliver(Rank owner, int64_t round) {
    builder_.finish(owners_.chunk_of(owner, round, Buffer::kOutput), place_of(owner, round, results_));
  }
  void pace(StepId send) {
    if (send == kNoStep) return;
    if (in_flight_.size() + 1 >= owners_.hosts().size() && in_flight_.size() >= 2) {
      builder_.order(send, in_flight_.front());
      in_flight_.pop_front();
    }
    in_flight_.push_back(send);
  }

  Builder& builder_;
  const OwnerCall& call_;
  TwoLevelOwners owners_;
  Slice parts_, results_, arrived_;  // of the wire buffer; see step.h
  std::deque<StepId> in_flight_;     // to other hosts
};

Schedule build(const Spec& spec, const Topology& topology, Rank me) {
  Builder builder(spec);
  Blocks blocks = Blocks::of_counts(spec.counts);
  const Chunks chunks = plan_chunks(spec, topology, blocks);
  const OwnerCall call{
      .spec = spec, .topology = topology, .me = me, .blocks = std::move(blocks), .chunks = chunks};
  Stages stages(builder, call);
  for (int64_t round = 0; round < chunks.rounds + 2; ++round) {
    const bool has_next = round < chunks.rounds;
    const bool has_middle = round >= 1 && round - 1 < chunks.rounds;
    if (has_next) stages.contribute(round);
    if (has_next) stages.reduce_in_host(round);
    if (has_middle) stages.exchange(round - 1);
    if (has_middle) stages.reduce_hosts(round - 1);
    if (round >= 2) stages.share(round - 2);
    if (round >= 2) stages.forward(round - 2);
  }
  return builder.take(name_of_schedule(spec.wire));
}

}  // namespace
}  // namespace allreduce_encoded

const Algorithm kAllreduceEncoded{.name = "encoded",
                                  .what = Collective::kAllreduce,
                                  .preserves_order = PreservesOrder::kAlways,
                                  .cost_us = allreduce_encoded::cost_us,
                                  .build = allreduce_encoded::build,
                                  .is_encoded = true};

}  // namespace rueda::schedule
