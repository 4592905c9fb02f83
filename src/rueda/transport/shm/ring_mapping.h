// The memory of one channel: two rings and two sleep words. It is anonymous and its size is sealed, so that a
// peer can neither leave it behind nor take pages away from a reader.
#pragma once

#include <cstddef>
#include <span>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"
#include "rueda/transport/shm/ring.h"

namespace rueda::transport {

// How an end holds on to the socket of its channel.
inline constexpr uint32_t kNeedsNoSocket = 1;  // it would notice the end of the other process without it
inline constexpr uint32_t kHasLetGo = 2;       // it has closed its socket, and is woken by its doorbell
inline constexpr uint32_t kHasLeft = 4;        // the channel has ended there

class RingMapping {
 public:
  static constexpr size_t kMinRingBytes = 4 << 10;
  static constexpr size_t kMaxRingBytes = 1 << 30;

  // What an end of the channel says about itself; only that end writes it.
  struct End {
    alignas(kLine) uint32_t state;  // bits of EndState
    char doorbell[56];              // its name, which ends with a zero byte; written before any bit is set
  };
  struct Control {
    RingControl rings[2];
    SleepControl sleeps[2];
    End ends[2];
  };

  // ring_bytes is a power of two within these bounds.
  static Result<RingMapping> create(size_t ring_bytes);
  // Maps what a peer sent, after checking that its size is sealed and plausible.
  static Result<RingMapping> adopt(UniqueFd memory);

  RingMapping() = default;
  RingMapping(RingMapping&& other) noexcept { *this = std::move(other); }
  RingMapping& operator=(RingMapping&& other) noexcept;
  ~RingMapping() { unmap(); }

  [[nodiscard]] Control& control() const { return *reinterpret_cast<Control*>(base_); }
  [[nodiscard]] std::span<std::byte> ring(int index) const;
  [[nodiscard]] int fd() const { return memory_.get(); }
  void close_fd() { memory_.reset(); }  // the mapping stays

 private:
  Status map(size_t ring_bytes);
  void unmap();

  UniqueFd memory_;
  std::byte* base_ = nullptr;
  size_t ring_bytes_ = 0;
};

}  // namespace rueda::transport
