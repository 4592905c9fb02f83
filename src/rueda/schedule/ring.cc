#include "rueda/schedule/ring.h"

namespace rueda::schedule {
namespace {

Slice block_of(const RingCall& call, int32_t block, Buffer buffer) {
  return {buffer, call.blocks.begin(block), call.blocks.count(block)};
}

}  // namespace

void ring_reduce_scatter(Builder& builder, const RingCall& call, const Slice& result) {
  const Rank n = call.size;
  if (n == 1) {
    builder.deliver(result, block_of(call, 0, Buffer::kInput));
    return;
  }
  // If the output holds every block in the type of the accumulator, it also holds the partial sums. Otherwise
  // two scratch blocks hold them: one is sent while the next one is received.
  const bool is_in_output = can_accumulate_in_output(call.spec) && call.spec.what == Collective::kAllreduce;
  const int64_t largest = is_in_output ? 0 : call.blocks.largest();
  const Slice spare[2] = {builder.scratch(largest), builder.scratch(largest)};
  const auto partial = [&](int64_t step, int32_t block) {  // the sum received in a step
    if (is_in_output) return block_of(call, block, Buffer::kOutput);
    if (step == n - 2 && can_accumulate_in_output(call.spec)) return result;
    return part(spare[step % 2], 0, call.blocks.count(block));
  };
  const Rank next = mod(call.me + 1, n);
  const Rank previous = mod(call.me - 1, n);
  for (int64_t step = 0; step < n - 1; ++step) {
    const int32_t leaving = mod(call.me - 1 - step, n);
    const int32_t arriving = mod(call.me - 2 - step, n);
    const Slice sent = step == 0 ? block_of(call, leaving, Buffer::kInput) : partial(step - 1, leaving);
    const Slice summed = partial(step, arriving);
    const Slice own = block_of(call, arriving, Buffer::kInput);
    const WireType wire = step == 0      ? WireType::kElement
                          : is_in_output ? WireType::kElement
                                         : WireType::kAccumulator;
    for (int64_t round = 0; round < call.chunks.rounds; ++round) {
      builder.send(next, call.chunks.of(sent, round));
      builder.recv_reduce(previous, call.chunks.of(summed, round), call.chunks.of(own, round), wire);
    }
  }
  const Slice sum = partial(n - 2, call.me);
  for (int64_t round = 0; round < call.chunks.rounds; ++round)
    builder.deliver(call.chunks.of(result, round), call.chunks.of(sum, round));
}

void ring_allgather(Builder& builder, const RingCall& call, const Slice& source) {
  const Rank n = call.size;
  for (int64_t step = 0; step < n - 1; ++step) {
    const int32_t leaving = mod(call.me - step, n);
    const int32_t arriving = mod(call.me - 1 - step, n);
    const Slice sent = step == 0 ? source : block_of(call, leaving, Buffer::kOutput);
    const Slice got = block_of(call, arriving, Buffer::kOutput);
    for (int64_t round = 0; round < call.chunks.rounds; ++round) {
      builder.send(mod(call.me + 1, n), call.chunks.of(sent, round));
      builder.recv(mod(call.me - 1, n), call.chunks.of(got, round));
    }
  }
}

}  // namespace rueda::schedule
