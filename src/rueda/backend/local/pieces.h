// The memory of a call as one run of elements that lie in several places: a fused call needs no packing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "rueda/backend/backend.h"

namespace rueda::backend {

class PieceList {
 public:
  void assign(std::span<const Piece> pieces) {
    pieces_.assign(pieces.begin(), pieces.end());
    begins_.clear();
    size_t at = 0;
    for (const Piece& piece : pieces_) {
      begins_.push_back(at);
      at += static_cast<size_t>(piece.count);
    }
    count_ = at;
  }

  [[nodiscard]] size_t count() const { return count_; }  // elements
  [[nodiscard]] std::span<const Piece> pieces() const { return pieces_; }

  // Calls f(piece index, first element within the piece, element number, elements) for [begin, end).
  template <class F>
  void for_range(size_t begin, size_t end, const F& f) const {
    if (begin >= end) return;
    auto index =
        static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin()) - 1;
    for (size_t at = begin; at < end; ++index) {
      const size_t within = at - begins_[index];
      const size_t left = static_cast<size_t>(pieces_[index].count) - within;
      const size_t size = std::min(left, end - at);
      if (size > 0) f(index, within, at, size);
      at += size;
    }
  }

 private:
  std::vector<Piece> pieces_;
  std::vector<size_t> begins_;  // [pieces] first element
  size_t count_ = 0;
};

}  // namespace rueda::backend
