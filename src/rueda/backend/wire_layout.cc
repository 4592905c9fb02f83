#include "rueda/backend/wire_layout.h"

namespace rueda::backend {

void WireLayout::assign(std::span<const Segment> segments, Rank members) {
  const auto n = static_cast<uint64_t>(members);
  pieces_.clear();
  owned_.assign(n, 0);
  count_ = 0;
  for (uint64_t owner = 0; owner < n; ++owner) {
    const int64_t begin = count_;
    for (size_t i = 0; i < segments.size(); ++i) {
      const Segment& tensor = segments[i];
      const int64_t blocks = (tensor.count + kWireBlock - 1) / kWireBlock;
      // The members take nearly equal shares of each tensor. The name says who takes the first, so that the
      // larger shares of many tensors do not meet.
      const auto share = static_cast<int64_t>((owner + n - tensor.name_hash % n) % n);
      const int64_t first = blocks * share / members, last = blocks * (share + 1) / members;
      if (first == last) continue;
      const int64_t within = first * kWireBlock;
      pieces_.push_back({.segment = i,
                         .within = within,
                         .count = std::min(tensor.count, last * kWireBlock) - within,
                         .begin = count_,
                         .filled = (last - first) * kWireBlock});
      count_ += pieces_.back().filled;
    }
    owned_[owner] = count_ - begin;
  }
}

}  // namespace rueda::backend
