// The device memory of one rank in a test of whole engines: tensors that get their values later, in the order
// of a stream of the rank's own, as those of a framework do.
#pragma once

#include <cstring>
#include <deque>
#include <vector>

#include "fixture.h"
#include "rueda/base/bytes.h"
#include "rueda/base/types.h"

namespace rueda::cuda_test {

class RankDevices {
 public:
  explicit RankDevices(Rank rank, int32_t devices = 2) : rank_(rank), devices_(devices) {
    for (int32_t ordinal = 0; ordinal < devices; ++ordinal) streams_.emplace_back(device(ordinal));
  }

  // Most tensors are on the rank's own device, some on another one.
  [[nodiscard]] int32_t device_of(uint64_t pick) const {
    return (rank_ + (pick % 4 == 0 ? 1 : 0)) % devices_;
  }

  std::byte* allocate(int32_t ordinal, size_t bytes) {
    memory_.push_back(cuda::DeviceBuffer::allocate(device(ordinal), std::max<size_t>(bytes, 1)).value());
    return memory_.back().data();
  }

  // The memory has these bytes only when the event has happened; until then it has others.
  Memory fill_later(int32_t ordinal, std::byte* memory, const Bytes& bytes) {
    std::memset(memory, 0xEE, bytes.size());
    UserStream& stream = streams_[static_cast<size_t>(ordinal)];
    stream.enqueue([memory, bytes] { std::ranges::copy(bytes, memory); });
    return {.kind = MemoryKind::kDevice, .device = ordinal, .ready = stream.record()};
  }
  // A stream that may wait for results.
  UserStream& stream() { return streams_.front(); }

 private:
  Rank rank_;
  int32_t devices_;
  std::deque<UserStream> streams_;
  std::deque<cuda::DeviceBuffer> memory_;
};

}  // namespace rueda::cuda_test
