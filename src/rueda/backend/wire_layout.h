// Where the elements of a call with a wire type lie: which member owns which blocks of a tensor, and where
// they are in the run of the call. It follows from the names, sizes and the number of members alone, not from
// what is fused, so that an owner keeps its blocks, and the errors of their sums, when buckets change. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rueda/backend/backend.h"

namespace rueda::backend {

class WireLayout {
 public:
  // Consecutive blocks of one tensor with one owner. Every tensor begins with a block of its own, and its
  // last block is filled up.
  struct Piece {
    size_t segment = 0;
    int64_t within = 0;  // its first element in the tensor
    int64_t count = 0;   // elements of the tensor
    int64_t begin = 0;  // its first element in the run of the call, in which each owner's pieces are together
    int64_t filled = 0;  // elements there: whole blocks
  };

  void assign(std::span<const Segment> segments, Rank members);

  [[nodiscard]] int64_t count() const { return count_; }                      // elements of the run
  [[nodiscard]] const std::vector<int64_t>& owned() const { return owned_; }  // [member] elements of the run
  [[nodiscard]] std::span<const Piece> pieces() const { return pieces_; }     // in the order of the run

  // Calls f(piece, offset, elements of the run, elements of the tensor) for each piece with a part in
  // [begin, end); the part begins `offset` elements behind the piece. begin and end are at blocks.
  template <class F>
  void for_range(int64_t begin, int64_t end, const F& f) const {
    auto piece = std::ranges::upper_bound(pieces_, begin, {}, &Piece::begin);
    for (piece = piece == pieces_.begin() ? piece : piece - 1; piece != pieces_.end(); ++piece) {
      if (piece->begin >= end) return;
      const int64_t offset = std::max<int64_t>(0, begin - piece->begin);
      const int64_t size = std::min(end - piece->begin, piece->filled) - offset;
      if (size > 0) f(*piece, offset, size, std::clamp<int64_t>(piece->count - offset, 0, size));
    }
  }

 private:
  std::vector<Piece> pieces_;
  std::vector<int64_t> owned_;
  int64_t count_ = 0;
};

}  // namespace rueda::backend
