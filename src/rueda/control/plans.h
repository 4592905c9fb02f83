// Learned plans while they run (plan_learner.h says how they begin). A plan is a list of buckets in a fixed
// order; every rank starts the next bucket of its process sets as soon as all its tensors are ready, without
// a control message. A rank that submits something else departs from the plan: the coordinator freezes the
// plan, and learns how far each rank is. A bucket runs if all its members have started it; others are
// cancelled. Tensors that were submitted and not run are negotiated again. Pure: no I/O, no clock, no
// threads.
//
// Buckets are numbered over all passes, those of other sets included: with three in a plan, bucket 1 of the
// second pass is number 4 on every rank. Every rank starts its buckets in the order of their numbers, so sets
// that overlap cannot deadlock: of the buckets that have not run, the one with the least number can. A bucket
// starts again only when it has ended, and it ends when all members have started it. So its members are never
// more than one run apart, but ranks that share no bucket may be.
//
// Before a bucket whose rows change from pass to pass runs a call that tells them (row_counts.h). It counts
// as a bucket without tensors: it has a number of its own, and starts with the bucket behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rueda/control/message_types.h"
#include "rueda/control/messages.h"
#include "rueda/control/plan_names.h"
#include "rueda/control/row_counts.h"
#include "rueda/control/set_members.h"

namespace rueda::control {

// How often the bucket with this index among `size` has been started by a rank that has started all its
// buckets with a lesser number than `started`.
inline int64_t runs_before(int64_t started, int64_t index, int64_t size) {
  return started <= index ? 0 : (started - index - 1) / size + 1;
}

// On the coordinator: how far the ranks are when a plan ends.
class PlanLedger {
 public:
  // sets: of the buckets, by index. They are known.
  void begin(int64_t plan_number, Rank ranks, std::vector<int32_t> sets, SetMembers members = {});
  [[nodiscard]] bool is_active() const { return is_active_; }
  [[nodiscard]] int64_t plan_number() const { return plan_number_; }
  // A rank departs. True if it is the first one; then every rank must be told to freeze.
  bool depart(int64_t plan_number);
  struct End {
    std::vector<int64_t> runs;  // as PlanEnd
    std::vector<Flow> flows;
  };
  // A frozen rank says how far it is. Returns the end of the plan once all ranks have said so. Fails if the
  // position cannot be true.
  Result<std::optional<End>> stopped_at(Rank rank, const PlanReport& position);
  // The members of a bucket by its number, ascending; and its process set. A plan is active.
  [[nodiscard]] std::vector<Rank> members_of(int64_t number) const;
  [[nodiscard]] int32_t set_of(int64_t number) const;
  // Not all buckets are of the world.
  [[nodiscard]] bool has_sets() const { return !members_.empty(); }

 private:
  // Of one bucket: as far as is known, the least and the most that a member has started it.
  struct Runs {
    int64_t least = -1, most = -1;  // -1: no member has spoken
  };
  Status note(Rank rank, const PlanReport& position);

  bool is_active_ = false, is_frozen_ = false;
  int64_t plan_number_ = 0;
  std::vector<int32_t> sets_;  // [bucket]
  SetMembers members_;
  std::vector<Runs> runs_;             // [bucket]
  std::vector<PlanReport> positions_;  // [rank], started -1: unknown
  Rank missing_ = 0;                   // how many positions are unknown
};

// Where a plan has a request. Who submits the same request again keeps it, so that it is found without its
// name.
struct PlanPlace {
  int64_t plan_number = 0;  // 0: it was in no plan
  size_t position = 0;
};

using OperationId = int64_t;  // the handle of an operation; each rank has its own

// A request that a rank has put into a plan and must negotiate after all.
struct LeftOver {
  OperationId operation = 0;
  TensorRequest request;
};

// On every rank: which bucket may start. A position counts the tensors of all buckets of the plan.
class PlanRunner {
 public:
  // me: the world rank of this process. Fails if the plan names two tensors alike, or an unknown set.
  Status begin(int64_t plan_number, Rank me, std::vector<Bucket> buckets, const SetMembers& sets = {});
  // While a plan is active and not frozen, submissions go here first.
  [[nodiscard]] bool is_open() const { return is_active_ && !is_frozen_; }
  [[nodiscard]] bool is_active() const { return is_active_; }
  [[nodiscard]] int64_t plan_number() const { return plan_number_; }
  // The number of the bucket to start next: this rank has started all its buckets before it, and no other.
  [[nodiscard]] int64_t started() const { return started_; }
  [[nodiscard]] int64_t size() const { return std::ssize(buckets_); }  // buckets of one pass
  [[nodiscard]] size_t tensors() const { return tensors_.size(); }     // of one pass
  // Which tensor of the plan it is. None if the plan does not expect it now; then this rank departs. All
  // tensors of an operation must have a position before one of them is accepted. last: where this request
  // was accepted last; its name had no number then, and only shares_memory and after may differ since.
  [[nodiscard]] std::optional<size_t> position_of(const TensorRequest& request,
                                                  const PlanPlace& last = {}) const;
  void accept(size_t position, const TensorRequest& request, OperationId operation = 0);
  [[nodiscard]] size_t waiting() const { return waiting_; }  // accepted tensors whose bucket has not started
  // The operation that waits at this position for its bucket to start; null if none does.
  [[nodiscard]] const LeftOver* waiting_at(size_t position) const {
    return tensors_[position].accepted == 0 ? nullptr : &tensors_[position].waiting;
  }
  struct Positions {
    size_t first = 0, count = 0;
  };
  // The positions of the bucket that has this one, if all its tensors wait for it to start.
  [[nodiscard]] std::optional<Positions> full_bucket_of(size_t position) const {
    const size_t bucket = tensors_[position].bucket;
    if (!is_full(bucket)) return std::nullopt;
    return Positions{.first = first_[bucket], .count = ready_[bucket]};
  }
  // This rank takes part in the bucket with this index.
  [[nodiscard]] bool has_part(size_t bucket) const { return is_mine_[bucket]; }
  // The bucket to start now, or null. first_open: the first bucket of the plan that has not ended here.
  [[nodiscard]] SharedBucket next(int64_t first_open) const;
  // The call that tells its rows and starts with it, whose number is started(); null if there is none.
  [[nodiscard]] SharedBucket next_row_counts() const {
    return tells_rows_[slot()] ? buckets_[slot()] : nullptr;
  }
  [[nodiscard]] int64_t next_number() const { return started_ + static_cast<int64_t>(tells_rows_[slot()]); }
  [[nodiscard]] size_t first_position() const { return first_[head()]; }  // of the bucket to start next
  void start_next();
  // Calls f(position) for the tensors that wait and never run if this rank submits nothing more: their
  // bucket, or one before it, lacks tensors.
  template <class F>
  void for_each_stuck(const F& f) const {
    bool is_stuck = false;
    for (int64_t number = started_; is_open() && number < started_ + size(); ++number) {
      const size_t at = static_cast<size_t>(number) % buckets_.size();
      if (!is_mine_[at]) continue;
      is_stuck = is_stuck || !is_full(at);
      for (size_t i = 0; is_stuck && i < tensors_in(at); ++i)
        if (waiting_at(first_[at] + i) != nullptr) f(first_[at] + i);
    }
  }
  // The first tensor of the next bucket that this rank has not submitted; empty if it has submitted all.
  [[nodiscard]] std::string lacks() const;
  void freeze() { is_frozen_ = true; }
  [[nodiscard]] const Bucket& bucket(int64_t started) const {
    return *buckets_[static_cast<size_t>(started) % buckets_.size()];
  }
  // How often this rank has started the bucket with this index.
  [[nodiscard]] int64_t starts_of(size_t bucket) const {
    return runs_before(started_, static_cast<int64_t>(bucket), size());
  }
  // The plan ends when its buckets have run so often. Returns what must be negotiated after all: what this
  // rank has started and must cancel, and then what waited, in the order in which it was submitted. Fails if
  // the plan cannot end there.
  Result<std::vector<LeftOver>> finish(std::span<const int64_t> runs);

 private:
  struct PlannedTensor {
    size_t bucket = 0;
    uint64_t accepted = 0;  // when, by clock_; 0: it does not wait
    int64_t number = 0;     // of a numbered name, which it must have next
    // Of tensors with the same name, which are submitted in turn: the first, the next, and in the first one
    // which is expected now.
    size_t first_alike = 0, next_alike = 0, expected = 0;
    LeftOver waiting = {};  // what was accepted last, if it waits
    LeftOver started = {};  // what was in the bucket when that was started last
  };
  [[nodiscard]] size_t slot() const { return static_cast<size_t>(started_) % buckets_.size(); }
  // The bucket to start next, behind the call that tells its rows.
  [[nodiscard]] size_t head() const { return slot() + static_cast<size_t>(tells_rows_[slot()]); }
  [[nodiscard]] size_t tensors_in(size_t bucket) const {
    return tells_rows_[bucket] ? 0 : buckets_[bucket]->entries.size();
  }
  [[nodiscard]] bool is_full(size_t bucket) const { return ready_[bucket] == tensors_in(bucket); }
  [[nodiscard]] const Entry& entry_at(size_t position) const {
    const size_t bucket = tensors_[position].bucket;
    return buckets_[bucket]->entries[position - first_[bucket]];
  }
  void add(Bucket bucket, bool tells_rows, Rank me, const SetMembers& sets);
  void link_names();
  void skip();
  // me: this rank's place in the set.
  [[nodiscard]] static bool is_as_planned(const TensorRequest& request, const Bucket& bucket,
                                          const Entry& entry, size_t me);

  bool is_active_ = false, is_frozen_ = false;
  int64_t plan_number_ = 0;
  int64_t started_ = 0;  // see started()
  uint64_t clock_ = 0;
  size_t waiting_ = 0;
  std::vector<SharedBucket> buckets_;
  std::vector<bool> is_mine_;     // [bucket]
  std::vector<bool> tells_rows_;  // [bucket] of the next one
  bool has_any_ = false;          // of my own
  std::vector<size_t> my_index_;  // [bucket] among the members of its set, if it is mine
  std::vector<size_t> first_;     // [bucket] position of its first tensor
  std::vector<size_t> ready_;     // [bucket] tensors that are waiting
  std::vector<PlannedTensor> tensors_;
  PlanNames names_;
};

}  // namespace rueda::control
