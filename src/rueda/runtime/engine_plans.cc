// The engine's side of learned plans: frames, and what the planner has the engine do.

#include "rueda/runtime/engine.h"

namespace rueda::runtime {
namespace {

// Large enough that starting a bucket costs nothing beside reducing it (some 100 us), small enough that
// reduction begins early in the backward pass and its last bucket is not long.
constexpr int64_t kBucketBytes = 1 << 20;
// In a learned plan nothing is negotiated: a tensor waits until the others of its bucket are submitted here.
constexpr std::string_view kWaitForBucket = "WAIT_FOR_BUCKET";

}  // namespace

// Plans need calls that can be taken back.
Planner::Options Engine::planner_options() const {
  const std::shared_ptr<const Group> world = groups_.find(0);
  const schedule::Spec spec{.counts = {}, .scale = {}, .segments = {}};
  const backend::Backend* backend = session_.backends->choose(*world, spec, {});
  const int64_t fusion_bytes = session_.all->front().fusion_bytes;
  return {.may_plan = is_coordinator() && session_.config.plans && session_.size() > 1 &&
                      backend != nullptr && backend->can_take_back(*world, spec),
          .bucket_bytes = std::min(kBucketBytes, fusion_bytes),
          .me = session_.me,
          .ranks = session_.size()};
}

PlannerActions Engine::planner_actions() {
  PlannerActions actions;
  actions.tell_coordinator = [this](control::FrameType type, const control::PlanNews& news) {
    if (!coordinator_) {
      send(kCoordinator, type, control::encode(news));
      count(counters_.negotiation_frames);
    } else if (type == control::FrameType::kPlanDepart) {
      planner_.on_depart(news);
    } else {
      planner_.on_position(session_.me, news);
    }
  };
  actions.negotiate = [this](std::span<const control::Request> requests) { negotiate(requests); };
  actions.negotiation_is_over = [this](const control::Request& request) {
    trace_negotiation(TraceKind::kEnd, request);
  };
  actions.is_taken = [this](const control::Request& request) {
    if (!timeline_->is_on() || request.what == Collective::kBarrier) return;
    if (waiting_in_plan_.insert(request.name).second)
      trace_wait(TraceKind::kBegin, request.name, kWaitForBucket);
  };
  actions.bucket_starts = [this](const control::Response& bucket) {
    if (!timeline_->is_on() && waiting_in_plan_.empty()) return;  // it may have been stopped meanwhile
    if (is_coordinator()) trace_round(monotonic_now());
    for (const control::Entry& entry : bucket.entries)
      if (waiting_in_plan_.erase(entry.name) > 0) trace_wait(TraceKind::kEnd, entry.name, kWaitForBucket);
  };
  actions.plan_is_over = [this] {
    for (const std::string& name : waiting_in_plan_) trace_wait(TraceKind::kEnd, name, kWaitForBucket);
    waiting_in_plan_.clear();
  };
  actions.freeze_all = [this](const control::PlanNews& news) {
    session_.links->broadcast_frame(control::FrameType::kPlanFreeze, control::encode(news));
    count(counters_.control_frames, session_.size() - 1);
    count(counters_.negotiation_frames, session_.size() - 1);
    planner_.on_freeze(news);
  };
  actions.respond = [this](std::vector<control::Response> responses) {
    broadcast_responses(responses);
    accept(std::move(responses));
  };
  return actions;
}

void Engine::handle_plan_news(const Frame& frame) {
  const Result<control::PlanNews> news = control::decode_plan_news(frame.payload);
  const bool is_for_me = (frame.type == control::FrameType::kPlanFreeze) != is_coordinator();
  if (!news.is_ok() || !is_for_me) {
    return fail({Code::kInternal, describe(frame.from, (*session_.all)[static_cast<size_t>(frame.from)]) +
                                      " sent plan news this rank cannot read."},
                -1, true);
  }
  switch (frame.type) {
    case control::FrameType::kPlanDepart:
      return planner_.on_depart(news.value());
    case control::FrameType::kPlanPosition:
      return planner_.on_position(frame.from, news.value());
    default:
      return planner_.on_freeze(news.value());
  }
}

}  // namespace rueda::runtime
