// Learned plans: once the same collectives recur step after step, ranks stop negotiating them. This part
// watches, on the coordinator, what is submitted and what runs, and proposes a plan when steps repeat. A step
// ends where a name recurs; where all names are numbers, call_history.h tells. Pure: no I/O, no clock, no
// threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rueda/control/backend_traits.h"
#include "rueda/control/call_history.h"
#include "rueda/control/messages.h"
#include "rueda/control/seen_tensor.h"

namespace rueda::control {

class PlanLearner {
 public:
  // bucket_bytes: tensors are fused up to this size. A larger tensor is a bucket of its own. It may overtake
  // small tensors, so that these fuse with later ones. traits_of: where it says bucket_bytes, that holds.
  explicit PlanLearner(int64_t bucket_bytes, BackendTraitsLookup traits_of = default_traits)
      : bucket_bytes_(bucket_bytes), traits_of_(std::move(traits_of)) {}

  void saw_submission(const TensorRequest& request);  // of any rank, in order of arrival
  void saw_response(const Response& response);        // in the order all ranks follow
  // The buckets of a plan, if a step has just ended and the last steps were equal. The learner
  // then starts again.
  std::optional<std::vector<Bucket>> take_plan();
  // A plan has ended after so many buckets. If it did not last long, the steps must repeat more often before
  // the next plan.
  void plan_ended(int64_t buckets);
  void forget();

 private:
  void saw_tensor(SeenTensor tensor);
  void end_step();
  // If the step has the tensors of the last one: by how much the numbers in their names have grown since, the
  // same for all; 0 if there are none.
  [[nodiscard]] std::optional<int64_t> stride_since_last_step() const;
  [[nodiscard]] bool has_no_plain_names() const;
  // The tensors of the step that has just ended, if the last steps were equal.
  std::optional<std::vector<SeenTensor>> take_step();
  [[nodiscard]] std::vector<Bucket> in_buckets(std::vector<SeenTensor> step) const;
  [[nodiscard]] int64_t most_bytes(const Bucket& bucket) const;

  static constexpr int kLeastRepeats = 2;

  int64_t bucket_bytes_;
  BackendTraitsLookup traits_of_;
  int repeats_needed_ = kLeastRepeats;
  int64_t planned_ = 0;  // how many buckets the last plan had
  int repeats_ = 0;
  uint64_t clock_ = 0;  // counts submissions and responses
  std::unordered_map<std::string, uint64_t> first_seen_;
  std::vector<SeenTensor> step_, last_step_;
  std::unordered_map<std::string, size_t> in_step_, in_last_step_;  // key -> position; see saw_tensor()
  std::unordered_map<std::string, int> numbered_;  // how many names of the step differ in the number alone
  size_t plain_ = 0;                               // names of the step without a number
  size_t rows_ = 0;                                // in the tensors of the step
  int64_t last_stride_ = 0;                        // as stride_since_last_step(), of the last step
  CallHistory history_;                            // of numbered names, since one without a number was seen
};

}  // namespace rueda::control
