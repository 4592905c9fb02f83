#include "rueda/control/plan_maker.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "rueda/control/plan_names.h"
#include "rueda/control/row_counts.h"

namespace rueda::control {
namespace {

constexpr size_t kMaxBuckets = 1 << 14;  // of a plan

}  // namespace

void PlanMaker::saw_submissions(std::span<const Request> requests, Nanos now) {
  if (!options_.may_plan || ledger_.is_active()) return;
  for (const Request& request : requests) {
    const auto* tensor = std::get_if<TensorRequest>(&request);
    if (tensor != nullptr) learner_.saw_submission(*tensor, now);
  }
}

void PlanMaker::saw_responses(std::span<const Response> responses) {
  if (!options_.may_plan || ledger_.is_active()) return;
  for (const Response& response : responses) {
    const auto* bucket = std::get_if<Bucket>(&response);
    if (bucket != nullptr && !options_.traits_of(bucket->process_set, *bucket).can_cancel)
      learner_.forget();
    else
      learner_.saw_response(response);
  }
}

PlannerActions PlanMaker::propose(const Coordinator& coordinator) {
  if (!options_.may_plan || ledger_.is_active()) return {};
  const SetMembers& sets = coordinator.process_sets();
  std::optional<std::vector<SeenTensor>> step = learner_.take_step(sets);
  if (!step) return {};
  std::vector<Bucket> plan = tuner_.learned(std::move(*step), sets);
  if (plan.size() > kMaxBuckets || !std::ranges::all_of(plan, [this](const Bucket& bucket) {
        return !has_varying_rows(bucket) ||
               options_.traits_of(bucket.process_set, row_count_terms()).can_cancel;
      }))
    return {};
  const Result<PlanNames> names = PlanNames::of(plan);
  const auto is_planned = [&](const TensorRequest& request) {
    return names.value().find(request).has_value();
  };
  if (!names.is_ok() || !coordinator.may_begin_plan(is_planned)) return {};  // it will be learned again
  std::vector<Response> responses;
  announce(std::move(plan), sets, responses);
  return {Respond{.responses = std::move(responses)}};
}

void PlanMaker::announce(std::vector<Bucket> plan, const SetMembers& sets, std::vector<Response>& responses) {
  PlanBegin begins{.plan_number = ++plans_announced_, .sets = {}};
  are_large_ = large_tensors(plan);
  std::vector<int32_t> set_of_each;
  SetMembers members;
  for (Bucket& bucket : plan) {
    const int32_t set = bucket.process_set;
    if (has_varying_rows(bucket)) set_of_each.push_back(set);  // the call that tells the rows
    set_of_each.push_back(set);
    if (set != 0) members.try_emplace(set, sets.at(set));
    responses.emplace_back(PlanBucket{.bucket = std::move(bucket)});
  }
  for (const auto& [id, ranks] : members) begins.sets.push_back({.id = id, .ranks = ranks});
  ledger_.begin(begins.plan_number, options_.ranks, std::move(set_of_each), members);
  planned_sets_ = std::move(members);
  told_at_ = 0;
  responses.emplace_back(std::move(begins));
}

void PlanMaker::taken(std::span<const size_t> positions, Nanos now) {
  for (const size_t position : positions)
    if (position < are_large_.size() && are_large_[position]) last_large_ = now;
}

// The others have started buckets of the next pass at most. A step that ends with a loss or a barrier submits
// that when it has waited for the large tensors, so communication is exposed since the last of these.
PlannerActions PlanMaker::between_passes(const PlanReport& here, Nanos now) {
  if (std::exchange(told_at_, here.started) != here.started) tuner_.exposed(now - last_large_);
  if (!tuner_.wants_change() || !ledger_.depart(here.plan_number)) return {};
  is_changing_ = true;
  return {FreezeAll{.news = here}};
}

PlannerActions PlanMaker::on_depart(const PlanReport& departed) {
  if (departed.plan_number == ledger_.plan_number()) keep_ended();  // another would end again at once
  if (!ledger_.depart(departed.plan_number)) return {};
  return {FreezeAll{.news = departed}};
}

Result<PlannerActions> PlanMaker::on_position(Rank from, const PlanReport& position) {
  Result<std::optional<PlanLedger::End>> stopped = ledger_.stopped_at(from, position);
  if (!stopped.is_ok()) return stopped.status();
  std::optional<PlanLedger::End>& end = stopped.value();
  if (!end) return PlannerActions();
  const int64_t passes = std::ranges::max(end->runs);
  const bool is_change = std::exchange(is_changing_, false);
  std::vector<Response> responses;
  responses.emplace_back(
      PlanEnd{.runs = std::move(end->runs), .flows = std::move(end->flows), .is_change = is_change});
  if (is_change) {
    passes_before_ += passes;
    announce(tuner_.next(), SetMembers(planned_sets_), responses);
  } else {
    learner_.plan_ended(std::exchange(passes_before_, 0) + passes);
    tuner_.plan_over();
  }
  return PlannerActions{Respond{.responses = std::move(responses)}};
}

}  // namespace rueda::control
