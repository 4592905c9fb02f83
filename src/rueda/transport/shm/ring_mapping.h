// The memory of one channel: two rings and two sleep words. Anonymous, of a size that nobody can change any
// more, so that a peer can neither leave it behind nor pull it away from under a reader.
#pragma once

#include <cstddef>
#include <span>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"
#include "rueda/transport/shm/ring.h"

namespace rueda::transport {

class Segment {
 public:
  static constexpr size_t kMinRingBytes = 4 << 10;
  static constexpr size_t kMaxRingBytes = 1 << 30;

  struct Control {
    RingControl rings[2];
    SleepControl sleeps[2];
  };

  // ring_bytes is a power of two within the bounds.
  static Result<Segment> create(size_t ring_bytes);
  // Maps what a peer sent after checking that its size is sealed and plausible.
  static Result<Segment> adopt(UniqueFd memory);

  Segment() = default;
  Segment(Segment&& other) noexcept { *this = std::move(other); }
  Segment& operator=(Segment&& other) noexcept;
  ~Segment() { unmap(); }

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
