// Collectives in which every rank owns one block: the owner reduces it and shares the result. The stages
// below work on one chunk of every block; an algorithm runs them over the chunks, later stages some chunks
// behind, and each rank lists them in the same order, so that the messages of a pair meet.
//
// Flat: contributions go straight to the owner. Two-level: one rank of each host (the entry) first reduces
// the contributions of its host, and receives shared results for its host, so that all data crosses between
// two hosts only once.
#pragma once

#include <deque>
#include <vector>

#include "rueda/schedule/blocks.h"
#include "rueda/schedule/builder.h"
#include "rueda/schedule/reduction_order.h"
#include "rueda/schedule/topology.h"

namespace rueda::schedule {

// How many chunks are in flight between two stages of a pipeline. The scratch of a chunk is reused this
// many chunks later.
inline constexpr int64_t kSlots = 4;

// The slices of scratch for a reduction over the hosts of one chunk. They are part of `sums`, which holds
// kSlots slots of `slot` elements for each level.
ReductionScratch reduction_scratch(const Slice& sums, int32_t levels, int64_t slot, int64_t round,
                                   int64_t count);

struct OwnerCall {
  const Spec& spec;
  const Topology& topology;
  Rank me = -1;
  Blocks blocks;  // block r belongs to rank r
  Chunks chunks;
};

class FlatOwners {
 public:
  FlatOwners(Builder& builder, const OwnerCall& call);

  void contribute(int64_t round);  // sends my input of every foreign block to its owner
  void reduce(int64_t round,
              const Slice& result);  // receives and reduces my block; result: where all of it goes
  void share(int64_t round, const Slice& result);  // sends my block, receives the others into output

 private:
  [[nodiscard]] Rank at_distance(int64_t distance) const;  // this many places behind me in canonical order
  void pace(StepId send);

  Builder& builder_;
  const OwnerCall& call_;
  std::vector<std::vector<Rank>> hosts_;
  std::vector<Rank> order_;  // host by host
  int64_t my_place_ = 0;     // in order_
  Slice sums_;               // [levels * slots * slot_]
  int32_t levels_ = 0;       // of a reduction
  int64_t slot_ = 0;
  std::deque<StepId> in_flight_;
};

class TwoLevelOwners {
 public:
  TwoLevelOwners(Builder& builder, const OwnerCall& call);

  void contribute(int64_t round);      // sends my input of every block to its entry in my host
  void reduce_in_host(int64_t round);  // as an entry: partial sums in rank order
  void exchange(int64_t round);        // sends the partials to their owners in other hosts
  void reduce_hosts(int64_t round, const Slice& result);
  void share(int64_t round, const Slice& result);  // to my host and to the entries of the others
  void forward(int64_t round);  // receives into output; as an entry: passes on inside my host

  [[nodiscard]] const std::vector<std::vector<Rank>>& hosts() const { return hosts_; }
  [[nodiscard]] const std::vector<Rank>& my_host() const { return hosts_[call_.topology.host_of[call_.me]]; }
  [[nodiscard]] int32_t my_place() const { return local_index_[call_.me]; }  // in my host
  [[nodiscard]] bool is_in_my_host(Rank rank) const;
  [[nodiscard]] Rank entry(int32_t host, Rank owner) const;
  [[nodiscard]] bool is_entry_of(Rank owner) const { return duty_[owner] >= 0; }
  [[nodiscard]] Slice chunk_of(Rank owner, int64_t round, Buffer buffer) const;
  [[nodiscard]] Slice partial_of(Rank owner, int64_t round) const;  // of my host; I must be the entry
  // Scratch for a sum of `count` elements over the hosts, in as many slots as chunks are in flight.
  [[nodiscard]] Slice sum_of(int64_t round, int64_t count) const {
    return part(sums_, round % kSlots * slot_, count);
  }

 private:
  Builder& builder_;
  const OwnerCall& call_;
  std::vector<std::vector<Rank>> hosts_;
  std::vector<int32_t> local_index_;  // of each rank in its host
  std::vector<int32_t> duty_;         // of each owner: which of my partials is its, or -1
  Slice sums_, partials_;             // [levels * slots * slot_], [duties * slots * slot_]
  int32_t levels_ = 0;                // of a reduction over the hosts
  int64_t slot_ = 0;
};

}  // namespace rueda::schedule
