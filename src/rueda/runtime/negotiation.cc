#include "rueda/runtime/negotiation.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "rueda/base/check.h"
#include "rueda/base/limits.h"
#include "rueda/base/log.h"
#include "rueda/runtime/backend_traits.h"
#include "rueda/runtime/backends.h"
#include "rueda/runtime/tuning.h"

namespace rueda::runtime {
namespace {

// As many transfers as there are data channels run at once, each with a fusion buffer: together they take no
// more memory than one did.
int64_t fusion_bytes(const Session& session) {
  return session.settings().fusion_bytes / static_cast<int64_t>(data_channels(*session.all));
}

control::CoordinatorOptions coordinator_options(const Session& session, const Groups& groups) {
  return {.world_size = session.size(),
          .fusion_bytes = fusion_bytes(session),
          .priority_bytes = session.config.priority_bytes,
          .group_fusion_disabled = session.settings().group_fusion_disabled,
          .stall_check_disabled = session.config.stall_check_disabled,
          .stall_warning = nanos(session.config.stall_warning_s, kSecond),
          .stall_shutdown = nanos(session.config.stall_shutdown_s, kSecond),
          .process_sets = groups.without_world(),
          .traits_of = make_traits_lookup(*session.backends, groups),
          .who = [all = session.all.get()](Rank rank) {
            return describe(rank, (*all)[static_cast<size_t>(rank)]);
          }};
}

// A size that the user has chosen holds for all backends.
control::BackendTraitsLookup plan_traits(const Session& session, const Groups& groups) {
  control::BackendTraitsLookup traits_lookup = make_traits_lookup(*session.backends, groups);
  if (session.config.plan_bucket_bytes == 0) return traits_lookup;
  return [traits_lookup](int32_t process_set, const control::Terms& terms) {
    control::BackendTraits traits = traits_lookup(process_set, terms);
    traits.bucket_bytes = 0;
    return traits;
  };
}

LearnedPlans::Options planner_options(const Session& session, const Hierarchy& hierarchy,
                                      const Groups& groups) {
  // The stall check sees what waits in plans and comes first; it may have to end the job.
  const double stall_s = std::max(session.config.stall_warning_s, session.config.stall_shutdown_s);
  const Nanos longest_stall = nanos(std::min(stall_s, 1e6), kSecond);
  const int64_t chosen = session.config.plan_bucket_bytes;
  const int64_t bucket_bytes = chosen > 0 ? chosen : plan_bucket_bytes(session);
  const bool may_plan = hierarchy.is_root() && session.config.plans && session.size() > 1;
  return {.may_plan = may_plan,
          .bucket_bytes = std::min(bucket_bytes, fusion_bytes(session)),
          .me = session.me,
          .ranks = session.size(),
          .traits_of = plan_traits(session, groups),
          .patience = 2 * longest_stall + kSecond,
          .tuner = may_plan ? tuner_options(session, fusion_bytes(session)) : control::Tuner::Options{}};
}

}  // namespace

Negotiation::Negotiation(Parts parts)
    : parts_(parts),
      plans_(planner_options(parts_.session, parts_.hierarchy, parts_.groups), parts_.operations,
             parts_.dispatcher, parts_.ready_streams, parts_.counters, parts_.trace),
      tuning_report_(parts_.session.config) {
  if (!is_coordinator()) return;
  // The calls that run at once, and one that is ready to follow.
  const control::Rounds::Options options{
      .cycle_time = nanos(parts_.session.config.cycle_time_ms, kMillisecond),
      .max_backlog = data_channels(*parts_.session.all) + 1};
  rounds_ = std::make_unique<control::Rounds>(coordinator_options(parts_.session, parts_.groups), options,
                                              plans_.planner());
}

bool Negotiation::take_submissions() {
  std::vector<control::Request> requests;
  parts_.operations.take_submitted(submitted_);
  parts_.ready_streams.begin();
  for (const std::shared_ptr<Operation>& operation : submitted_) {
    control::Planner::Decision decision = plans_.take(operation);
    carry_out(std::move(decision.actions));
    if (decision.is_taken) continue;
    for (Tensor& tensor : operation->tensors) {
      parts_.ready_streams.mark(tensor);
      requests.emplace_back(tensor.request);
    }
    if (operation->set_change) requests.emplace_back(*operation->set_change);
  }
  if (!requests.empty()) negotiate(requests);
  const bool had_some = !submitted_.empty();
  submitted_.clear();
  return had_some;
}

bool Negotiation::drop_submissions() {
  parts_.operations.take_submitted(submitted_);
  const bool had_some = !submitted_.empty();
  submitted_.clear();
  return had_some;
}

void Negotiation::negotiate(std::span<const control::Request> requests) {
  if (!rounds_) return send_requests(requests);
  rounds_->submitted(parts_.session.me, plans_.planner().plans_begun(), {requests.begin(), requests.end()},
                     monotonic_now(), &parts_.trace);
}

// All requests of a group travel in one message; messages are cut between groups.
void Negotiation::send_requests(std::span<const control::Request> requests) {
  Bytes payload = control::encode(plans_.planner().plans_begun(), requests);
  size_t cut = requests.size() / 2;
  const auto is_inside_group = [](const control::Request& request) {
    const auto* tensor = std::get_if<control::TensorRequest>(&request);
    return tensor != nullptr && tensor->group_index != 0;
  };
  while (cut < requests.size() && is_inside_group(requests[cut])) ++cut;
  if (payload.size() > kMaxMessageBytes && cut > 0 && cut < requests.size()) {
    send_requests(requests.first(cut));
    send_requests(requests.subspan(cut));
    return;
  }
  parts_.channel.send_negotiation_up(control::MessageType::kRequests, std::move(payload));
}

bool Negotiation::begin_round(Nanos now) {
  std::vector<control::Response> responses = rounds_->take_round(now, parts_.dispatcher.order().backlog());
  if (responses.empty()) return false;
  mark_cycle();
  respond(std::move(responses));
  carry_out(rounds_->responded());
  return true;
}

std::vector<control::StalledTensor> Negotiation::waiting_longer_than(Nanos age, Nanos now) const {
  return rounds_ ? rounds_->waiting_longer_than(age, now) : std::vector<control::StalledTensor>();
}

Status Negotiation::report_stalls(Nanos now, std::vector<control::StalledTensor> in_plan) {
  for (const control::StallReport& report : rounds_->take_stalls(now, std::move(in_plan))) {
    count(parts_.counters.meters->stalls);
    if (report.is_fatal)
      RUEDA_LOG(kError, report.text);
    else
      RUEDA_LOG(kWarning, report.is_news ? report.text : report.short_text);
    parts_.trace.record(instant_span(SpanKind::kStall, report.text));
    const auto text = std::as_bytes(std::span(report.short_text));
    parts_.channel.send_below(control::MessageType::kStallReport, Bytes(text.begin(), text.end()));
    if (report.is_fatal) return {Code::kStalled, "Horovod has been shut down. " + report.text};
  }
  return Status::ok();
}

void Negotiation::respond(std::vector<control::Response> responses) {
  if (parts_.channel.is_open()) broadcast(responses);
  const Status accepted = accept(std::move(responses));
  RUEDA_CHECK(accepted.is_ok(), "rank 0 does not contradict itself");
}

void Negotiation::broadcast(std::span<const control::Response> responses) {
  Bytes payload = control::encode(responses);
  if (payload.size() > kMaxMessageBytes && responses.size() > 1) {  // thousands of ranks in an alltoall
    broadcast(responses.first(responses.size() / 2));
    broadcast(responses.subspan(responses.size() / 2));
    return;
  }
  parts_.channel.send_negotiation_below(control::MessageType::kResponses, std::move(payload));
}

Status Negotiation::accept(std::vector<control::Response> responses) {
  for (control::Response& response : responses) {
    Result<std::optional<control::PlannerActions>> of_plan = plans_.accept(response);
    if (!of_plan.is_ok()) return of_plan.status();
    if (of_plan.value())
      carry_out(std::move(*of_plan.value()));
    else
      parts_.dispatcher.enqueue(std::move(response));
  }
  return Status::ok();
}

void Negotiation::mark_cycle() {
  if (is_coordinator() && parts_.trace.wants_details())
    parts_.trace.record(instant_span(SpanKind::kCycle, {}));
}

bool Negotiation::run_plan(Nanos now) {
  bool moved = false;
  while (std::optional<control::StartBucket> started = plans_.next(now)) {
    mark_cycle();
    plans_.carry_out(*started);
    parts_.dispatcher.progress();  // hands it to the backend
    parts_.dispatcher.progress();  // shows it to the other ranks
    moved = true;
  }
  carry_out(plans_.tick(now));
  if (is_coordinator()) tuning_report_.write(plans_.planner().maker().take_news(), now);
  carry_out(plans_.wanted(now));
  return moved;
}

Status Negotiation::on_statement(const control::Statement& statement, Nanos now, bool accepts_requests) {
  using control::MessageType;
  if (statement.type == MessageType::kRequests) {
    const Result<control::SharedSubmitted> submitted = reader_.read(statement.payload);
    if (!submitted.is_ok()) return submitted.status();
    if (!accepts_requests) return Status::ok();
    rounds_->submitted(statement.from, submitted.value().plans_begun, submitted.value().requests, now,
                       &parts_.trace);
    return Status::ok();
  }
  const Result<control::PlanReport> news = control::decode_plan_news(statement.payload);
  if (!news.is_ok()) return news.status();
  control::PlanMaker& maker = plans_.planner().maker();
  if (statement.type == MessageType::kPlanDepart) {
    carry_out(maker.on_depart(news.value()));
    return Status::ok();
  }
  for (const Rank from : statement.from.ranks()) {
    Result<control::PlannerActions> actions = maker.on_position(from, news.value());
    if (!actions.is_ok()) return actions.status();
    carry_out(std::move(actions).value());
  }
  return Status::ok();
}

Status Negotiation::on_order(const ControlMessage& message) {
  if (message.type == control::MessageType::kResponses) {
    Result<std::vector<control::Response>> responses = control::decode_responses(message.payload);
    if (!responses.is_ok()) return responses.status();
    parts_.channel.saw(responses.value());
    return accept(std::move(responses).value());
  }
  const Result<control::PlanReport> news = control::decode_plan_news(message.payload);
  if (!news.is_ok()) return news.status();
  carry_out(plans_.planner().on_freeze(news.value()));
  return Status::ok();
}

void Negotiation::carry_out(control::PlannerActions actions) {
  const auto one_of_them = [this](auto& action) {
    if constexpr (requires { plans_.carry_out(action); })
      plans_.carry_out(action);
    else
      carry_out(action);
  };
  for (control::PlannerAction& action : actions) std::visit(one_of_them, action);
}

void Negotiation::carry_out(control::TellDeparture& told) {
  plans_.note(told);
  tell_coordinator(control::MessageType::kPlanDepart, told.news);
}

void Negotiation::carry_out(control::TellPosition& told) {
  told.news.under_way = parts_.dispatcher.pause();
  tell_coordinator(control::MessageType::kPlanPosition, told.news);
}

void Negotiation::carry_out(control::FreezeAll& frozen) {
  parts_.channel.send_negotiation_below(control::MessageType::kPlanFreeze, control::encode(frozen.news));
  carry_out(plans_.planner().on_freeze(frozen.news));
}

void Negotiation::tell_coordinator(control::MessageType type, const control::PlanReport& news) {
  if (!is_coordinator()) return parts_.channel.send_negotiation_up(type, control::encode(news));
  control::Planner& planner = plans_.planner();
  if (type == control::MessageType::kPlanDepart) return carry_out(planner.maker().on_depart(news));
  Result<control::PlannerActions> actions = planner.maker().on_position(parts_.session.me, news);
  RUEDA_CHECK(actions.is_ok(), "rank 0 is asked first, and contradicts nobody");
  carry_out(std::move(actions).value());
}

Nanos Negotiation::next_event(Nanos now, bool begins_rounds) const {
  Nanos next = plans_.next_event();
  if (rounds_ && begins_rounds) {
    next = std::min(next, rounds_->next_stall_check());
    if (rounds_->next_round() > now) next = std::min(next, rounds_->next_round());
  }
  return next;
}

}  // namespace rueda::runtime
