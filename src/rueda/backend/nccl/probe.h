// How many bytes a bucket of a learned plan should have where NCCL carries it: so many that what does not
// grow with the size, its launch and its latency, takes a fifth of its time. More would start later and gain
// little. It is measured when the world has a communicator: every member runs the same allreduces, so the
// list of calls depends on nothing that only one member knows. Rank 0 makes the plans, so its times count.
//
// Calls: 4 bytes, 1 MiB and 4 MiB, four times each. The first of each size is not measured, because NCCL
// connects then. The least time counts, because a member that comes late makes the others wait. NCCL takes
// another protocol for small calls than for large ones, so the time of a byte is that between the two large
// sizes. Pure.
//
// Example: a call of 4 bytes takes 20 us, one of 1 MiB 41 us and one of 4 MiB 104 us. So the latency is 20
// us, and beyond that NCCL moves 50 GB/s. 20 us are a fifth of 100 us, and in the other 80 us NCCL moves 4
// MB: the bucket has 4 MiB, the next power of two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "rueda/base/clock.h"

namespace rueda::nccl {

class Probe {
 public:
  static constexpr size_t kSmall = 4, kMedium = 1 << 20, kLarge = 4 << 20;  // bytes
  static constexpr size_t kCalls = 12;

  // The bytes of the next call; empty: all calls were made.
  [[nodiscard]] std::optional<size_t> next() const;
  // The time of that call, from its launch to its end on the device.
  void took(Nanos time);
  // That call is not waited for, so nothing is found out. The others must still be made.
  void give_up();

  // A power of two of at least 1 MiB, or `most`, if that is less. 0: nothing was found out.
  [[nodiscard]] int64_t bucket_bytes(int64_t most) const;
  [[nodiscard]] double latency_us() const;   // of a call: what does not grow with its size
  [[nodiscard]] double us_per_byte() const;  // beyond that; 0: less than can be measured

 private:
  static constexpr std::array<size_t, 3> kSizes = {kSmall, kMedium, kLarge};
  size_t made_ = 0;  // calls
  bool has_given_up_ = false;
  std::array<Nanos, 3> least_ = {};  // [kSizes]; 0: not measured yet
};

}  // namespace rueda::nccl
