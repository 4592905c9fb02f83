#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/control/numbered_name.h"
#include "rueda/control/plans.h"

namespace rueda::control {

void PlanLedger::begin(int64_t plan_number, Rank ranks, std::vector<int32_t> sets, SetMembers members) {
  is_active_ = true;
  is_frozen_ = false;
  plan_number_ = plan_number;
  sets_ = std::move(sets);
  members_ = std::move(members);
  runs_.assign(sets_.size(), {});
  positions_.assign(static_cast<size_t>(ranks),
                    PlanReport{.plan_number = plan_number, .started = -1, .under_way = {}});
  missing_ = ranks;
}

bool PlanLedger::depart(int64_t plan_number) {
  if (!is_active_ || plan_number != plan_number_) return false;  // the plan ended before this message arrived
  return !std::exchange(is_frozen_, true);
}

int32_t PlanLedger::set_of(int64_t number) const { return sets_[static_cast<size_t>(number) % sets_.size()]; }

std::vector<Rank> PlanLedger::members_of(int64_t number) const {
  if (const auto set = members_.find(set_of(number)); set != members_.end()) return set->second;
  std::vector<Rank> all(positions_.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Takes all that the position says of the rank's buckets, or nothing.
Status PlanLedger::note(Rank rank, const PlanReport& position) {
  const std::string plan = "learned plan " + std::to_string(plan_number_);
  if (!is_frozen_) return {Code::kInternal, "Nobody has asked how far the rank is in " + plan + "."};
  const int64_t size = std::ssize(sets_);
  std::vector<Runs> noted = runs_;
  for (int64_t index = 0; index < size; ++index) {
    if (!is_member(members_, sets_[static_cast<size_t>(index)], rank)) continue;
    Runs& runs = noted[static_cast<size_t>(index)];
    const int64_t mine = runs_before(position.started, index, size);
    runs = {.least = runs.least < 0 ? mine : std::min(runs.least, mine), .most = std::max(runs.most, mine)};
    if (runs.most - runs.least <= 1) continue;
    return {Code::kInternal,
            "A rank that has started " + std::to_string(position.started) + " buckets of " + plan +
                " is more than one pass of " + std::to_string(size) + " buckets away from another: bucket " +
                std::to_string(index) + " was started " + std::to_string(runs.least) +
                " times by one of them, and " + std::to_string(runs.most) + " times by the other."};
  }
  runs_ = std::move(noted);
  return Status::ok();
}

Result<std::optional<PlanLedger::End>> PlanLedger::stopped_at(Rank rank, const PlanReport& position) {
  const bool is_known_rank = rank >= 0 && static_cast<size_t>(rank) < positions_.size();
  if (!is_active_ || position.plan_number != plan_number_ || !is_known_rank) return std::optional<End>();
  PlanReport& known = positions_[static_cast<size_t>(rank)];
  if (is_frozen_ && known.started >= 0)
    return Status(Code::kInternal, "Rank " + std::to_string(rank) +
                                       " says twice how far it is in learned plan " +
                                       std::to_string(plan_number_) + ".");
  if (Status possible = note(rank, position); !possible.is_ok()) return possible;
  known = position;
  if (--missing_ > 0) return std::optional<End>();
  is_active_ = false;
  End end;
  for (const Runs& runs : runs_) end.runs.push_back(std::max<int64_t>(runs.least, 0));
  for (size_t from = 0; from < positions_.size(); ++from) {
    for (const auto& [bucket, sent] : positions_[from].under_way) {
      if (bucket < 0) continue;
      const int64_t size = std::ssize(sets_);
      if (bucket / size < end.runs[static_cast<size_t>(bucket % size)]) continue;
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

Status PlanRunner::begin(int64_t plan_number, Rank me, std::vector<Bucket> buckets, const SetMembers& sets) {
  RUEDA_CHECK(!buckets.empty(), "a plan has buckets");
  *this = PlanRunner();
  Result<PlanNames> names = PlanNames::of(buckets);
  if (!names.is_ok()) return names.status();
  for (const Bucket& bucket : buckets) {
    if (!is_known(sets, bucket.process_set))
      return {Code::kInternal, "Learned plan " + std::to_string(plan_number) +
                                   " does not say who belongs to process set " +
                                   std::to_string(bucket.process_set) + "."};
    if (!has_varying_rows(bucket)) continue;
    if (Status possible = check_varying_rows(bucket); !possible.is_ok()) return possible;
  }
  names_ = std::move(names).value();
  is_active_ = true;
  plan_number_ = plan_number;
  for (Bucket& bucket : buckets) {
    if (has_varying_rows(bucket)) add(row_counts_before(bucket), true, me, sets);
    add(std::move(bucket), false, me, sets);
  }
  ready_.assign(buckets_.size(), 0);
  link_names();
  skip();
  return Status::ok();
}

void PlanRunner::add(Bucket bucket, bool tells_rows, Rank me, const SetMembers& sets) {
  first_.push_back(tensors_.size());
  tells_rows_.push_back(tells_rows);
  is_mine_.push_back(is_member(sets, bucket.process_set, me));
  has_any_ = has_any_ || is_mine_.back();
  my_index_.push_back(index_in(sets, bucket.process_set, me));
  for (size_t i = 0; !tells_rows && i < bucket.entries.size(); ++i) {
    const Entry& entry = bucket.entries[i];
    PlannedTensor& planned = tensors_.emplace_back(PlannedTensor{.bucket = buckets_.size()});
    if (const auto name = split_name(entry.name, entry.numbered_at))
      planned.number = name->number + entry.stride;  // the one in the entry has run
  }
  buckets_.push_back(std::make_shared<const Bucket>(std::move(bucket)));
}

void PlanRunner::link_names() {
  std::map<std::pair<int32_t, std::string_view>, size_t> last;  // without a number
  for (size_t position = 0; position < tensors_.size(); ++position) {
    PlannedTensor& planned = tensors_[position];
    planned.first_alike = planned.next_alike = planned.expected = position;
    const Entry& entry = entry_at(position);
    if (entry.numbered_at != 0) continue;
    const auto [at, is_new] = last.try_emplace({buckets_[planned.bucket]->process_set, entry.name}, position);
    if (is_new) continue;
    PlannedTensor& before = tensors_[std::exchange(at->second, position)];
    planned.first_alike = planned.next_alike = before.first_alike;
    before.next_alike = position;
  }
}

// To the next bucket in which this rank takes part.
void PlanRunner::skip() {
  while (has_any_ && !is_mine_[slot()]) ++started_;
}

// The rows that ranks give may differ, and are planned for each of them.
bool PlanRunner::is_as_planned(const TensorRequest& request, const Bucket& bucket, const Entry& entry,
                               size_t me) {
  if (key_of(request) != key_of(bucket)) return false;
  const auto has_shape_but_rows = [&] {
    return !request.shape.empty() && request.shape.size() == entry.shape.size() &&
           std::equal(request.shape.begin() + 1, request.shape.end(), entry.shape.begin() + 1);
  };
  switch (bucket.what) {
    case Collective::kBroadcast:
      return request.root == bucket.root && request.shape == entry.shape;
    case Collective::kAllgather:
      return has_shape_but_rows() && me < entry.rows.size() &&
             (entry.rows_vary || request.shape[0] == entry.rows[me]);
    case Collective::kAlltoall: {
      const size_t n = request.splits.size();
      return has_shape_but_rows() && n > 0 && n * n == entry.rows.size() && me < n &&
             (entry.rows_vary || std::equal(request.splits.begin(), request.splits.end(),
                                            entry.rows.begin() + static_cast<std::ptrdiff_t>(me * n)));
    }
    default:
      return request.shape == entry.shape;
  }
}

std::optional<size_t> PlanRunner::position_of(const TensorRequest& request, const PlanPlace& last) const {
  if (request.priority != 0 || request.shares_memory) return std::nullopt;
  const bool is_known = last.plan_number == plan_number_;
  const std::optional<PlanNames::Found> found =
      is_known ? PlanNames::Found{.position = tensors_[last.position].first_alike} : names_.find(request);
  if (!found) return std::nullopt;
  const size_t position = tensors_[found->position].expected;
  const PlannedTensor& planned = tensors_[position];
  const size_t bucket = planned.bucket;
  const bool is_expected = is_mine_[bucket] && planned.accepted == 0 && planned.number == found->number;
  if (!is_expected) return std::nullopt;
  const bool was_here = is_known && position == last.position;
  if (!was_here && !is_as_planned(request, *buckets_[bucket], entry_at(position), my_index_[bucket]))
    return std::nullopt;
  return position;
}

void PlanRunner::accept(size_t position, const TensorRequest& request, OperationId operation) {
  PlannedTensor& planned = tensors_[position];
  planned.waiting.operation = operation;
  planned.waiting.request = request;  // of the same sizes in every step, so nothing is allocated
  planned.accepted = ++clock_;
  planned.number += entry_at(position).stride;
  tensors_[planned.first_alike].expected = planned.next_alike;
  ++ready_[planned.bucket];
  ++waiting_;
}

SharedBucket PlanRunner::next(int64_t first_open) const {
  const bool may_start = is_open() && has_any_ && is_full(head()) && next_number() - size() < first_open;
  return may_start ? buckets_[head()] : nullptr;
}

void PlanRunner::start_next() {
  const size_t bucket = head();
  for (size_t i = 0; i < tensors_in(bucket); ++i) {
    PlannedTensor& planned = tensors_[first_[bucket] + i];
    std::swap(planned.waiting, planned.started);
    planned.accepted = 0;
  }
  waiting_ -= ready_[bucket];
  ready_[bucket] = 0;
  started_ = next_number() + 1;
  skip();
}

std::string PlanRunner::lacks() const {
  if (!has_any_) return {};
  for (size_t i = 0; i < tensors_in(head()); ++i) {
    const size_t position = first_[head()] + i;
    if (waiting_at(position) != nullptr) continue;
    const Entry& entry = entry_at(position);
    const auto name = split_name(entry.name, entry.numbered_at);
    if (!name) return entry.name;
    return name->with(tensors_[position].number);
  }
  return {};
}

Result<std::vector<LeftOver>> PlanRunner::finish(std::span<const int64_t> runs) {
  if (!is_active_) return Status(Code::kInternal, "A learned plan ends, but this rank runs none.");
  const std::string plan = "Learned plan " + std::to_string(plan_number_);
  if (runs.size() != buckets_.size())
    return Status(Code::kInternal, plan + " has " + std::to_string(size()) +
                                       " buckets in one pass, but it ends with the runs of " +
                                       std::to_string(runs.size()) + ".");
  std::vector<int64_t> cancelled;  // numbers
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    const int64_t mine = starts_of(bucket);
    if (!is_mine_[bucket] || runs[bucket] == mine) continue;
    // A bucket starts again only when all members have started it.
    if (runs[bucket] != mine - 1)
      return Status(Code::kInternal, plan + " cannot end after " + std::to_string(runs[bucket]) +
                                         " runs of bucket " + std::to_string(bucket) +
                                         ": this rank has started it " + std::to_string(mine) + " times.");
    cancelled.push_back(runs[bucket] * size() + static_cast<int64_t>(bucket));
  }
  std::ranges::sort(cancelled);
  std::vector<LeftOver> left;
  for (const int64_t number : cancelled) {
    const size_t at = static_cast<size_t>(number) % buckets_.size();
    for (size_t i = 0; i < tensors_in(at); ++i) left.push_back(tensors_[first_[at] + i].started);
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
