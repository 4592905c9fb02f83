// Learned plans: once the same collectives recur step after step, ranks stop negotiating them. This part
// watches, on the coordinator, what is submitted and what runs, and finds the step that a plan is made of
// when steps repeat (call_history.h says when). Pure: no I/O, no clock, no threads.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/control/call_history.h"
#include "rueda/control/messages.h"
#include "rueda/control/set_members.h"

namespace rueda::control {

class PlanLearner {
 public:
  void saw_submission(const TensorRequest& request, Nanos now = 0);  // of any rank, in order of arrival
  void saw_response(const Response& response);                       // in the order all ranks follow
  // The calls of a step, if the last steps were equal. The learner then starts again. sets: as they are now.
  std::optional<std::vector<SeenTensor>> take_step(const SetMembers& sets = {});
  // A plan has ended after so many passes. If it did not last long, the steps must repeat more often before
  // the next plan.
  void plan_ended(int64_t passes);
  void forget();

 private:
  static constexpr int kLeastRepeats = 2;

  struct HashOfName {
    size_t operator()(const NameInSet& one) const {
      return std::hash<std::string>()(one.name) ^ static_cast<size_t>(one.process_set) * 0x9E3779B97F4A7C15u;
    }
  };

  CallHistory::Proof needed_{.repeats = kLeastRepeats};
  size_t planned_ = 0;       // tensors of the last plan
  int64_t last_passes_ = 0;  // of the one before it
  uint64_t clock_ = 0;       // counts submissions and responses
  bool is_news_ = false;     // something has run since take_plan() was asked last
  struct FirstSeen {
    uint64_t at = 0;  // by clock_
    Nanos time = 0;
  };
  std::unordered_map<NameInSet, FirstSeen, HashOfName> first_seen_;
  CallHistory history_;
};

}  // namespace rueda::control
