// A prepared schedule: the schedule of one rank for one call, checked and rearranged so that it runs fast.
// Dependencies become counts and lists of dependents, and messages become one queue per peer and direction.
// It has nothing to do with learned plans (control/plans.h). schedule_cache.h makes it once; execution.h runs
// it many times. Immutable: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rueda/schedule/step.h"

namespace rueda::backend {

// How many elements the input and the output of a call have on the rank `me` of a group of n.
int64_t input_count(const schedule::Spec& spec, Rank me, Rank n);
int64_t output_count(const schedule::Spec& spec, Rank me, Rank n);
// The element type of a buffer, and of what a peer sends.
DType type_of(const schedule::Spec& spec, schedule::Buffer buffer);
DType type_of(const schedule::Spec& spec, schedule::WireType wire);

struct PreparedSchedule {
  struct Queue {
    Rank peer = -1;              // index in the group
    bool sends = false;          // otherwise receives
    std::vector<int32_t> steps;  // in posting order
  };

  schedule::Schedule schedule;            // `after` of its steps is empty; blockers and dependents replace it
  std::vector<int32_t> blockers;          // [steps] number of steps it waits for
  std::vector<int32_t> dependents;        // all lists, one after the other
  std::vector<int32_t> dependents_begin;  // [steps + 1] into dependents
  std::vector<int32_t> queue_of;          // [steps] index into queues; -1: a local step
  std::vector<int32_t> consumer_of;       // [steps] numbers the receives that need a consumer; -1: none
  std::vector<Queue> queues;
  int32_t consumer_count = 0;
  bool reads_input = false;   // in another step than kEncode
  int64_t encoded_count = 0;  // elements that its steps encode

  [[nodiscard]] size_t size() const { return schedule.steps.size(); }
  [[nodiscard]] std::span<const int32_t> dependents_of(int32_t step) const {
    return std::span(dependents)
        .subspan(dependents_begin[step], dependents_begin[step + 1] - dependents_begin[step]);
  }
};

// Checks that every slice lies in its buffer and that every step depends only on earlier ones. A schedule
// that violates this is a bug of its algorithm and must not reach memory.
PreparedSchedule prepare_schedule(schedule::Schedule schedule, const schedule::Spec& spec, Rank me, Rank n);

}  // namespace rueda::backend
