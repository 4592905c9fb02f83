#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/control/plans.h"

namespace rueda::control {

void PlanLedger::begin(int64_t plan_number, Rank ranks, int64_t size) {
  is_active_ = true;
  is_frozen_ = false;
  plan_number_ = plan_number;
  size_ = size;
  positions_.assign(static_cast<size_t>(ranks),
                    PlanReport{.plan_number = plan_number, .started = -1, .under_way = {}});
  missing_ = ranks;
}

bool PlanLedger::depart(int64_t plan_number) {
  if (!is_active_ || plan_number != plan_number_) return false;  // the plan ended before this message arrived
  return !std::exchange(is_frozen_, true);
}

// A tensor is submitted again only when its bucket has run on all ranks, so no rank is more than one pass
// ahead of another.
Status PlanLedger::check(const PlanReport& position) const {
  const std::string plan = "learned plan " + std::to_string(plan_number_);
  if (!is_frozen_) return {Code::kInternal, "Nobody has asked how far the rank is in " + plan + "."};
  for (const PlanReport& other : positions_) {
    if (other.started < 0 || std::abs(other.started - position.started) <= size_) continue;
    return {Code::kInternal, "A rank that has started " + std::to_string(position.started) + " buckets of " +
                                 plan + " is more than one pass of " + std::to_string(size_) +
                                 " buckets away from one that has started " + std::to_string(other.started) +
                                 "."};
  }
  return Status::ok();
}

Result<std::optional<PlanLedger::End>> PlanLedger::stopped_at(Rank rank, const PlanReport& position) {
  const bool is_known_rank = rank >= 0 && static_cast<size_t>(rank) < positions_.size();
  if (!is_active_ || position.plan_number != plan_number_ || !is_known_rank) return std::optional<End>();
  if (Status possible = check(position); !possible.is_ok()) return possible;
  PlanReport& known = positions_[static_cast<size_t>(rank)];
  if (known.started < 0) --missing_;
  known = position;
  if (missing_ > 0) return std::optional<End>();
  is_active_ = false;
  End end{.buckets = std::ranges::min(positions_, {}, &PlanReport::started).started, .flows = {}};
  for (size_t from = 0; from < positions_.size(); ++from) {
    for (const auto& [bucket, sent] : positions_[from].under_way) {
      if (bucket < end.buckets) continue;
      for (size_t to = 0; to < std::min(sent.size(), positions_.size()); ++to)
        if (sent[to] > 0)
          end.flows.push_back({.bucket = bucket,
                               .from = static_cast<Rank>(from),
                               .to = static_cast<Rank>(to),
                               .messages = sent[to]});
    }
  }
  return std::optional(std::move(end));
}

void PlanRunner::begin(int64_t plan_number, std::vector<Bucket> buckets) {
  RUEDA_CHECK(!buckets.empty(), "a plan has buckets");
  *this = PlanRunner();
  is_active_ = true;
  plan_number_ = plan_number;
  for (Bucket& bucket : buckets) buckets_.push_back(std::make_shared<const Bucket>(std::move(bucket)));
  ready_.assign(buckets_.size(), 0);
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    for (size_t entry = 0; entry < buckets_[bucket]->entries.size(); ++entry)
      planned_[buckets_[bucket]->entries[entry].name] = {.bucket = bucket, .entry = entry, .accepted = 0};
}

bool PlanRunner::fits(const TensorRequest& request) const {
  if (request.process_set != 0 || request.priority != 0 || request.shares_memory) return false;
  const auto found = planned_.find(request.name);
  if (found == planned_.end()) return false;
  const PlannedTensor& planned = found->second;
  const Bucket& bucket = *buckets_[planned.bucket];
  const bool is_same =
      key_of(request) == key_of(bucket) && request.shape == bucket.entries[planned.entry].shape;
  return is_same && planned.accepted == 0;
}

void PlanRunner::accept(const TensorRequest& request, OperationId operation) {
  PlannedTensor& planned = planned_.at(request.name);
  planned.last.operation = operation;
  planned.last.request = request;  // the same in every step, so nothing is allocated
  planned.accepted = ++clock_;
  ++ready_[planned.bucket];
  ++waiting_;
}

SharedBucket PlanRunner::next() const {
  if (!is_open()) return nullptr;
  const size_t bucket = head();
  return ready_[bucket] == buckets_[bucket]->entries.size() ? buckets_[bucket] : nullptr;
}

void PlanRunner::start_next() {
  const size_t bucket = head();
  for (const Entry& entry : buckets_[bucket]->entries) planned_[entry.name].accepted = 0;
  waiting_ -= ready_[bucket];
  ready_[bucket] = 0;
  ++started_;
}

bool PlanRunner::would_wait_forever(const std::string& name) const {
  if (!is_open()) return false;
  const auto found = planned_.find(name);
  if (found == planned_.end() || found->second.accepted == 0) return false;
  for (size_t bucket = head();; bucket = (bucket + 1) % buckets_.size()) {
    if (ready_[bucket] < buckets_[bucket]->entries.size()) return true;
    if (bucket == found->second.bucket) return false;
  }
}

std::string PlanRunner::lacks() const {
  for (const Entry& entry : buckets_[head()]->entries)
    if (planned_.at(entry.name).accepted == 0) return entry.name;
  return {};
}

Result<std::vector<LeftOver>> PlanRunner::finish(int64_t end) {
  if (!is_active_) return Status(Code::kInternal, "A learned plan ends, but this rank runs none.");
  // No rank is more than one pass ahead of another; see PlanLedger.
  if (end < 0 || end > started_ || started_ - end > size()) {
    return Status(Code::kInternal, "Learned plan " + std::to_string(plan_number_) + ", which has " +
                                       std::to_string(size()) + " buckets in one pass, cannot end after " +
                                       std::to_string(end) + " buckets: this rank has started " +
                                       std::to_string(started_) + ".");
  }
  std::vector<LeftOver> left;
  for (int64_t cancelled = end; cancelled < started_; ++cancelled)
    for (const Entry& entry : bucket(cancelled).entries) left.push_back(planned_.at(entry.name).last);
  std::vector<const PlannedTensor*> waiting;
  for (const auto& [name, planned] : planned_)
    if (planned.accepted != 0) waiting.push_back(&planned);
  std::ranges::sort(waiting, {}, &PlannedTensor::accepted);
  for (const PlannedTensor* planned : waiting) left.push_back(planned->last);
  is_active_ = false;
  return left;
}

}  // namespace rueda::control
