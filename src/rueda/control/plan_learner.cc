#include "rueda/control/plan_learner.h"

#include <algorithm>
#include <cstdlib>

#include "rueda/control/bucketing.h"
#include "rueda/control/numbered_name.h"

namespace rueda::control {
namespace {

constexpr size_t kMaxWatched = 1 << 16;  // names that are submitted and have not run
constexpr int kMaxRepeats = 64;          // most repeats asked for before the next plan
constexpr int64_t kManyTimes = 32;       // passes after which a plan has paid
constexpr size_t kFewTensors = 8;        // of one layer
constexpr size_t kMostProof = 1 << 12;   // calls

bool is_plannable(const Bucket& bucket) {
  const bool is_adasum = bucket.what == Collective::kAllreduce && bucket.op == ReduceOp::kAdasum;
  return !is_adasum && bucket.joined.empty();
}

SeenTensor alone(const Bucket& bucket, const Entry& entry) {
  SeenTensor tensor;
  static_cast<Terms&>(tensor.bucket) = bucket;
  tensor.bucket.process_set = bucket.process_set;
  tensor.bucket.root = bucket.root;
  tensor.bucket.entries = {entry};
  tensor.bytes = bytes_of(bucket, entry);
  if (const auto name = split_name(entry.name, entry.numbered_at)) tensor.number = name->number;
  return tensor;
}

}  // namespace

void PlanLearner::saw_submission(const TensorRequest& request, Nanos now) {
  if (request.priority != 0) return forget();  // what is ready decides the order, so none is fixed
  if (request.shares_memory) return forget();  // whether it does depends on what has ended
  if (first_seen_.size() >= kMaxWatched) forget();
  first_seen_.try_emplace({.process_set = request.process_set, .name = request.name},
                          FirstSeen{.at = ++clock_, .time = now});
}

void PlanLearner::saw_response(const Response& response) {
  const auto* bucket = std::get_if<Bucket>(&response);
  if (bucket == nullptr || !is_plannable(*bucket)) return forget();
  is_news_ = true;
  const uint64_t started = ++clock_;
  for (const Entry& entry : bucket->entries) {
    SeenTensor tensor = alone(*bucket, entry);
    const auto seen = first_seen_.find({.process_set = bucket->process_set, .name = entry.name});
    tensor.seen = seen != first_seen_.end() ? seen->second.at : started;
    tensor.ready = seen != first_seen_.end() ? seen->second.time : 0;
    tensor.started = started;
    if (seen != first_seen_.end()) first_seen_.erase(seen);
    history_.add(std::move(tensor));
  }
}

std::optional<std::vector<SeenTensor>> PlanLearner::take_step(const SetMembers& sets) {
  if (!std::exchange(is_news_, false)) return std::nullopt;
  std::optional<std::vector<SeenTensor>> step = history_.last_step(needed_, sets);
  if (!step) return std::nullopt;
  planned_ = step->size();
  forget();
  return step;
}

// Equal layers are taken for short steps. If such a plan lasts long enough to pay, but ends after as many
// passes as the last one, the next one must be proven by more calls than there are layers.
void PlanLearner::plan_ended(int64_t passes) {
  const bool has_paid = passes >= kManyTimes;
  const bool is_as_before = std::abs(passes - last_passes_) <= 2;
  const bool is_of_layers = has_paid && is_as_before && planned_ <= kFewTensors;
  needed_.repeats = has_paid ? kLeastRepeats : std::min(2 * needed_.repeats, kMaxRepeats);
  needed_.calls = is_of_layers ? std::min(2 * planned_ * static_cast<size_t>(passes), kMostProof) : 0;
  last_passes_ = passes;
  forget();
}

void PlanLearner::forget() {
  first_seen_.clear();
  history_.clear();
}

}  // namespace rueda::control
