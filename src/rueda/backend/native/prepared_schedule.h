// A prepared schedule: what `schedule` made for one rank and one call, checked and rearranged so that it runs
// fast: dependencies as counts and lists of dependents, messages as one queue per peer and direction. It is
// not a learned plan (control/plans.h). schedule_cache.h makes it once; execution.h runs it many times.
// Immutable: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rueda/schedule/step.h"

namespace rueda::backend {

// Elements of a call's input and output on the rank `me` of a group of n.
int64_t input_count(const schedule::Spec& spec, Rank me, Rank n);
int64_t output_count(const schedule::Spec& spec, Rank me, Rank n);
// Element type of a buffer, and of what a peer sends.
DType type_of(const schedule::Spec& spec, schedule::Space space);
DType type_of(const schedule::Spec& spec, schedule::Wire wire);

struct PreparedSchedule {
  struct Queue {
    Rank peer = -1;              // index in the group
    bool sends = false;          // else receives
    std::vector<int32_t> steps;  // in posting order
  };

  schedule::Schedule schedule;            // `after` of its steps is empty: blockers and dependents say it
  std::vector<int32_t> blockers;          // [steps] number of steps it waits for
  std::vector<int32_t> dependents;        // all lists, one after the other
  std::vector<int32_t> dependents_begin;  // [steps + 1] into dependents
  std::vector<int32_t> queue_of;          // [steps] index into queues; -1: a local step
  std::vector<int32_t> consumer_of;       // [steps] dense number of receives that are not plain copies, or -1
  std::vector<Queue> queues;
  int32_t consumer_count = 0;

  [[nodiscard]] size_t size() const { return schedule.steps.size(); }
  [[nodiscard]] std::span<const int32_t> dependents_of(int32_t step) const {
    return std::span(dependents)
        .subspan(dependents_begin[step], dependents_begin[step + 1] - dependents_begin[step]);
  }
};

// Checks that every slice lies in its buffer and every dependency points backwards: a schedule that does not
// is a bug of its algorithm and must not reach memory.
PreparedSchedule prepare_schedule(schedule::Schedule schedule, const schedule::Spec& spec, Rank me, Rank n);

}  // namespace rueda::backend
