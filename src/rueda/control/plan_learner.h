// Learned plans: once the same collectives recur step after step, ranks stop negotiating them. This part
// watches, on the coordinator, what is submitted and what runs, and proposes a plan when steps repeat
// (call_history.h says when). Pure: no I/O, no clock, no threads.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rueda/control/backend_traits.h"
#include "rueda/control/call_history.h"
#include "rueda/control/messages.h"
#include "rueda/control/set_members.h"

namespace rueda::control {

class PlanLearner {
 public:
  // bucket_bytes: tensors are fused up to this size. A larger tensor is a bucket of its own. It may overtake
  // small tensors, so that these fuse with later ones. traits_of: where it says bucket_bytes, that holds.
  explicit PlanLearner(int64_t bucket_bytes, BackendTraitsLookup traits_of = default_traits)
      : bucket_bytes_(bucket_bytes), traits_of_(std::move(traits_of)) {}

  void saw_submission(const TensorRequest& request);  // of any rank, in order of arrival
  void saw_response(const Response& response);        // in the order all ranks follow
  // The buckets of a plan, if the last steps were equal. The learner then starts again. sets: as they are
  // now.
  std::optional<std::vector<Bucket>> take_plan(const SetMembers& sets = {});
  // A plan has ended after so many passes. If it did not last long, the steps must repeat more often before
  // the next plan.
  void plan_ended(int64_t passes);
  void forget();

 private:
  // A bucket that may still grow.
  struct Open {
    Bucket bucket;
    int64_t bytes = 0;
    uint64_t started = 0;  // when its first tensor was
  };
  [[nodiscard]] std::vector<Bucket> in_buckets(std::vector<SeenTensor> step, const SetMembers& sets) const;
  void put(SeenTensor tensor, const SetMembers& sets, std::vector<Open>& buckets) const;
  [[nodiscard]] int64_t most_bytes(const Bucket& bucket) const;

  static constexpr int kLeastRepeats = 2;

  struct HashOfName {
    size_t operator()(const NameInSet& one) const {
      return std::hash<std::string>()(one.name) ^ static_cast<size_t>(one.process_set) * 0x9E3779B97F4A7C15u;
    }
  };

  int64_t bucket_bytes_;
  BackendTraitsLookup traits_of_;
  CallHistory::Proof needed_{.repeats = kLeastRepeats};
  size_t planned_ = 0;       // tensors of the last plan
  int64_t last_passes_ = 0;  // of the one before it
  uint64_t clock_ = 0;       // counts submissions and responses
  bool is_news_ = false;     // something has run since take_plan() was asked last
  std::unordered_map<NameInSet, uint64_t, HashOfName> first_seen_;
  CallHistory history_;
};

}  // namespace rueda::control
