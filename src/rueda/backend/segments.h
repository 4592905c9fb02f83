// Treats the tensors of a call, which lie in several places, as one run of elements. Engine thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "rueda/backend/backend.h"

namespace rueda::backend {

class SegmentList {
 public:
  void assign(std::span<const Segment> segments) {
    segments_.assign(segments.begin(), segments.end());
    begins_.clear();
    size_t at = 0;
    for (const Segment& segment : segments_) {
      begins_.push_back(at);
      at += static_cast<size_t>(segment.count);
    }
    count_ = at;
  }

  [[nodiscard]] size_t count() const { return count_; }  // elements
  [[nodiscard]] std::span<const Segment> segments() const { return segments_; }

  // Calls f(segment index, first element within the segment, first element within the run, elements) for each
  // segment that has a part in [begin, end).
  template <class F>
  void for_range(size_t begin, size_t end, const F& f) const {
    if (begin >= end) return;
    auto index =
        static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin()) - 1;
    for (size_t at = begin; at < end; ++index) {
      const size_t within = at - begins_[index];
      const size_t left = static_cast<size_t>(segments_[index].count) - within;
      const size_t size = std::min(left, end - at);
      if (size > 0) f(index, within, at, size);
      at += size;
    }
  }

 private:
  std::vector<Segment> segments_;
  std::vector<size_t> begins_;  // [segments] first element within the run
  size_t count_ = 0;
};

// Writes `count` elements of the segment's input, from `begin` on, to `to`: prescaled, or identity elements
// if this rank has no input. `to` must not overlap the input.
void load(const schedule::Spec& spec, double prescale, const Segment& segment, size_t begin, size_t count,
          std::byte* to);

}  // namespace rueda::backend
