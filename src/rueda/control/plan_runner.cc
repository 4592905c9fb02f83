#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/control/numbered_name.h"
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

// See PlanRunner::next().
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

Status PlanRunner::begin(int64_t plan_number, Rank me, std::vector<Bucket> buckets) {
  RUEDA_CHECK(!buckets.empty(), "a plan has buckets");
  *this = PlanRunner();
  Result<PlanNames> names = PlanNames::of(buckets);
  if (!names.is_ok()) return names.status();
  names_ = std::move(names).value();
  is_active_ = true;
  plan_number_ = plan_number;
  me_ = me;
  for (Bucket& bucket : buckets) {
    first_.push_back(tensors_.size());
    for (const Entry& entry : bucket.entries) {
      PlannedTensor& planned = tensors_.emplace_back(PlannedTensor{.bucket = buckets_.size()});
      if (const auto name = split_name(entry.name, entry.numbered_at))
        planned.number = name->number + entry.stride;  // the one in the entry has run
    }
    buckets_.push_back(std::make_shared<const Bucket>(std::move(bucket)));
  }
  ready_.assign(buckets_.size(), 0);
  return Status::ok();
}

// The rows that ranks give may differ, and are planned for each of them.
bool PlanRunner::is_as_planned(const TensorRequest& request, const Bucket& bucket, const Entry& entry) const {
  if (key_of(request) != key_of(bucket)) return false;
  const auto me = static_cast<size_t>(me_);
  const auto has_shape_but_rows = [&] {
    return !request.shape.empty() && request.shape.size() == entry.shape.size() &&
           std::equal(request.shape.begin() + 1, request.shape.end(), entry.shape.begin() + 1);
  };
  switch (bucket.what) {
    case Collective::kBroadcast:
      return request.root == bucket.root && request.shape == entry.shape;
    case Collective::kAllgather:
      return has_shape_but_rows() && me < entry.rows.size() && request.shape[0] == entry.rows[me];
    case Collective::kAlltoall: {
      const size_t n = request.splits.size();
      return has_shape_but_rows() && n > 0 && n * n == entry.rows.size() && me < n &&
             std::equal(request.splits.begin(), request.splits.end(),
                        entry.rows.begin() + static_cast<std::ptrdiff_t>(me * n));
    }
    default:
      return request.shape == entry.shape;
  }
}

std::optional<size_t> PlanRunner::position_of(const TensorRequest& request) const {
  if (request.process_set != 0 || request.priority != 0 || request.shares_memory) return std::nullopt;
  const std::optional<PlanNames::Found> found = names_.find(request);
  if (!found) return std::nullopt;
  const PlannedTensor& planned = tensors_[found->position];
  const bool is_expected = planned.accepted == 0 && planned.number == found->number;
  if (!is_expected || !is_as_planned(request, *buckets_[planned.bucket], entry_at(found->position)))
    return std::nullopt;
  return found->position;
}

void PlanRunner::accept(size_t position, const TensorRequest& request, OperationId operation) {
  PlannedTensor& planned = tensors_[position];
  planned.waiting.operation = operation;
  planned.waiting.request = request;  // of the same sizes in every step, so nothing is allocated
  planned.accepted = ++clock_;
  planned.number += entry_at(position).stride;
  ++ready_[planned.bucket];
  ++waiting_;
}

SharedBucket PlanRunner::next(int64_t first_open) const {
  const bool may_start = is_open() && is_full(head()) && started_ - size() < first_open;
  return may_start ? buckets_[head()] : nullptr;
}

void PlanRunner::start_next() {
  const size_t bucket = head();
  for (size_t i = 0; i < buckets_[bucket]->entries.size(); ++i) {
    PlannedTensor& planned = tensors_[first_[bucket] + i];
    std::swap(planned.waiting, planned.started);
    planned.accepted = 0;
  }
  waiting_ -= ready_[bucket];
  ready_[bucket] = 0;
  ++started_;
}

std::string PlanRunner::lacks() const {
  for (size_t i = 0; i < buckets_[head()]->entries.size(); ++i) {
    const size_t position = first_[head()] + i;
    if (waiting_at(position) != nullptr) continue;
    const Entry& entry = entry_at(position);
    const auto name = split_name(entry.name, entry.numbered_at);
    if (!name) return entry.name;
    return name->with(tensors_[position].number);
  }
  return {};
}

Result<std::vector<LeftOver>> PlanRunner::finish(int64_t end) {
  if (!is_active_) return Status(Code::kInternal, "A learned plan ends, but this rank runs none.");
  // No rank is more than one pass ahead of another; see next().
  if (end < 0 || end > started_ || started_ - end > size()) {
    return Status(Code::kInternal, "Learned plan " + std::to_string(plan_number_) + ", which has " +
                                       std::to_string(size()) + " buckets in one pass, cannot end after " +
                                       std::to_string(end) + " buckets: this rank has started " +
                                       std::to_string(started_) + ".");
  }
  std::vector<LeftOver> left;
  for (int64_t cancelled = end; cancelled < started_; ++cancelled) {
    const size_t first = first_[static_cast<size_t>(cancelled) % buckets_.size()];
    for (size_t i = 0; i < bucket(cancelled).entries.size(); ++i) left.push_back(tensors_[first + i].started);
  }
  std::vector<const PlannedTensor*> waiting;
  for (const PlannedTensor& planned : tensors_)
    if (planned.accepted != 0) waiting.push_back(&planned);
  std::ranges::sort(waiting, {}, &PlannedTensor::accepted);
  for (const PlannedTensor* planned : waiting) left.push_back(planned->waiting);
  is_active_ = false;
  return left;
}

}  // namespace rueda::control
