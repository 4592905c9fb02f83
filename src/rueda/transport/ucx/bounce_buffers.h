// Memory to which pieces for consumers are fetched, because a consumer has no memory that UCX could write to.
// All channels of a transport share them. Engine thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "rueda/transport/ucx/piece.h"

namespace rueda::transport {

class BounceBuffers {
 public:
  static constexpr size_t kBuffers = 8;  // pieces under way: 4 MiB keep any link busy
  static constexpr size_t kMaxUnitBytes = 64
                                          << 10;  // room in front of a piece for the unit that it completes
  static constexpr size_t kBufferBytes = kMaxUnitBytes + kUcxPieceBytes;

  // Null if all are taken. Aligned to pages, and registered with a card only once, since they stay.
  std::byte* take() {
    if (free_.empty() && places_.size() < kBuffers) free_.push_back(places_.emplace_back(make()).get());
    if (free_.empty()) return nullptr;
    std::byte* place = free_.back();
    free_.pop_back();
    return place;
  }
  void give_back(std::byte* place) { free_.push_back(place); }
  [[nodiscard]] bool has_room() const { return !free_.empty() || places_.size() < kBuffers; }

  // For pieces that are copied and consumed at once.
  std::byte* scratch() {
    if (!scratch_) scratch_ = make();
    return scratch_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{4096};
  struct Free {
    void operator()(std::byte* place) const { ::operator delete(place, kAlignment); }
  };
  using Buffer = std::unique_ptr<std::byte, Free>;
  static Buffer make() { return Buffer(static_cast<std::byte*>(::operator new(kBufferBytes, kAlignment))); }

  std::vector<Buffer> places_;
  std::vector<std::byte*> free_;
  Buffer scratch_;
};

}  // namespace rueda::transport
