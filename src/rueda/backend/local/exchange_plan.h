// What the members of one host give one another in an allgather, broadcast, reducescatter or alltoall, and
// how it passes through shared buffers. Pure: values in, values out; any thread.
//
// A parcel is what one member gives another one: the parts of all tensors of the call, one after the other.
// In an allgather and a broadcast, a member gives the same parcel to all (is_shared), so it lies in its
// buffers once. In the others, each receiver has a lane of its own.
//
// A parcel passes through the stages of its giver in chunks of lane_elements(). Chunk k of the parcel to
// member d lies in stage k % kExchangeStages, lane_begin(d) bytes after its beginning. All of it lies in the
// giver's one-shot buffer if it fits there, one_shot_begin_to(d) bytes after the beginning.
//
// Example: alltoall of 3 members, float32, counts {5, 40000, 7, ...}. A lane has 128 KiB / 3, rounded down to
// cache lines: 43,648 bytes or 10,912 elements. Member 0 gives member 1 40,000 elements in 4 chunks; chunk 1
// is elements 10,912 to 21,823 and lies 43,648 bytes after the beginning of stage 1.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/local/cost.h"

namespace rueda::backend {

// The part of one tensor in a parcel, in elements.
struct ParcelPiece {
  size_t segment = 0;
  size_t at = 0;  // first element within the parcel
  size_t count = 0;
  size_t input = 0;   // first element within the giver's input
  size_t output = 0;  // first element within the receiver's output
  bool operator==(const ParcelPiece&) const = default;
};

class Parcel {
 public:
  void clear() { pieces_.clear(), count_ = 0; }
  void add(size_t segment, size_t count, size_t input, size_t output) {
    if (count > 0) pieces_.push_back({segment, count_, count, input, output});
    count_ += count;
  }
  [[nodiscard]] size_t count() const { return count_; }  // elements
  [[nodiscard]] std::span<const ParcelPiece> pieces() const { return pieces_; }

  // Calls f for what [begin, end) of the parcel has of each tensor, in order.
  template <class F>
  void for_range(size_t begin, size_t end, const F& f) const {
    if (begin >= end) return;
    auto piece = std::ranges::upper_bound(pieces_, begin, {}, &ParcelPiece::at) - 1;
    for (size_t at = begin; at < end; ++piece) {
      const size_t within = at - piece->at, size = std::min(piece->count - within, end - at);
      f(ParcelPiece{piece->segment, at, size, piece->input + within, piece->output + within});
      at += size;
    }
  }

 private:
  std::vector<ParcelPiece> pieces_;  // none is empty
  size_t count_ = 0;
};

class ExchangePlan {
 public:
  // Whether it can be planned at all: the counters of chunks are bounded (control_block.h).
  static bool can_plan(const schedule::Spec& spec, size_t ranks);
  // Whether it is at least as fast as a schedule over channels.
  static bool pays(const schedule::Spec& spec, size_t ranks);

  void assign(const schedule::Spec& spec, const Group& group, std::span<const Segment> segments);

  [[nodiscard]] bool is_shared() const { return is_shared_; }
  // To the member; the same for all members if is_shared(). Without places in outputs.
  [[nodiscard]] const Parcel& outgoing(Rank to) const {
    return outgoing_[is_shared_ ? 0 : static_cast<size_t>(to)];
  }
  [[nodiscard]] const Parcel& incoming(Rank from) const { return incoming_[static_cast<size_t>(from)]; }
  [[nodiscard]] bool gives() const { return given_ > 0; }
  [[nodiscard]] size_t given_bytes() const { return given_ * element_; }  // to all members, me included
  [[nodiscard]] size_t taken_bytes() const { return taken_ * element_; }  // from all members
  [[nodiscard]] size_t total_bytes() const { return total_ * element_; }  // the same on every member
  // Which algorithm runs if no tensor lies in an arena; the same on every member.
  [[nodiscard]] LocalAlgorithm algorithm() const { return algorithm_; }

  [[nodiscard]] size_t lane_elements() const { return lane_elements_; }
  [[nodiscard]] size_t lane_begin(Rank to) const {
    return is_shared_ ? 0 : static_cast<size_t>(to) * lane_elements_ * element_;
  }
  [[nodiscard]] size_t chunks_of(const Parcel& parcel) const {
    return (parcel.count() + lane_elements_ - 1) / lane_elements_;
  }
  // Of what I give to others.
  [[nodiscard]] size_t outgoing_chunks() const { return outgoing_chunks_; }
  // Where the parcel of that member to me, and of me to that member, begins in the one-shot buffer of its
  // giver, in bytes.
  [[nodiscard]] size_t one_shot_begin_from(Rank from) const {
    return one_shot_from_[static_cast<size_t>(from)];
  }
  [[nodiscard]] size_t one_shot_begin_to(Rank to) const { return one_shot_to_[static_cast<size_t>(to)]; }

 private:
  void plan_parcels(const schedule::Spec& spec, std::span<const Segment> segments);
  void plan_buffers(const schedule::Spec& spec);

  size_t ranks_ = 0, me_ = 0, element_ = 1;
  bool is_shared_ = false;
  std::vector<Parcel> outgoing_, incoming_;   // [member]
  size_t given_ = 0, taken_ = 0, total_ = 0;  // elements
  LocalAlgorithm algorithm_ = LocalAlgorithm::kInline;
  size_t lane_elements_ = 1, outgoing_chunks_ = 0;
  std::vector<size_t> one_shot_from_, one_shot_to_;  // [member]
};

}  // namespace rueda::backend
