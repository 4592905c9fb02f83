#include "rueda/runtime/engine.h"

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rueda/base/limits.h"
#include "rueda/base/log.h"
#include "rueda/base/thread.h"
#include "rueda/runtime/floating_point.h"

namespace rueda::runtime {
namespace {

// Responses the coordinator keeps under way; what becomes ready meanwhile fuses.
constexpr size_t kMaxBacklog = 2;
// Where tensors have to be packed. A copy in and a copy out of so much take as long as a call of its own.
constexpr int64_t kAloneBytes = 1 << 20;
constexpr Nanos kFailureWait = 2 * kSecond;

Nanos seconds(double s) { return static_cast<Nanos>(s * static_cast<double>(kSecond)); }

control::CoordinatorOptions coordinator_options(const Session& session, const Groups& groups) {
  const Facts& mine = session.all->front();  // rank 0's settings hold for the job
  const schedule::Spec spec{.counts = {}, .scale = {}, .segments = {}};
  const backend::Backend* backend = session.backends->choose(*groups.find(0), spec, {});
  const bool packs = backend != nullptr && backend->copies_fused(*groups.find(0), spec);
  return {.world_size = session.size(),
          .fusion_bytes = mine.fusion_bytes,
          .alone_bytes = packs ? kAloneBytes : 0,
          .priority_bytes = session.config.priority_bytes,
          .group_fusion_disabled = mine.group_fusion_disabled,
          .stall_check_disabled = session.config.stall_check_disabled,
          .stall_warning = seconds(session.config.stall_warning_s),
          .stall_shutdown = seconds(session.config.stall_shutdown_s),
          .process_sets = groups.without_world()};
}

// The sentence is Horovod's; who began is ours.
Status shut_down_status(const std::string& who) {
  std::string text =
      "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to run "
      "a collective after one of the ranks finished execution. If the shutdown was caused by an exception, "
      "you should see it in the log before the first shutdown message.";
  if (!who.empty()) text += " The first to leave was " + who + ".";
  return {Code::kShutDown, std::move(text)};
}

void pin_thread(const Config& config, Rank local_rank) {
  if (config.thread_affinity.empty()) return;
  std::string_view rest = config.thread_affinity;
  for (Rank i = 0; i < local_rank && !rest.empty(); ++i) {
    const size_t comma = rest.find(',');
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  const std::string entry(rest.substr(0, rest.find(',')));
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool is_number =
      !entry.empty() && std::all_of(entry.begin(), entry.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (is_number && entry.size() < 5) CPU_SET(static_cast<size_t>(std::stoi(entry)), &set);
  if (!is_number || sched_setaffinity(0, sizeof(set), &set) != 0) {
    RUEDA_LOG(kError, "RUEDA_THREAD_AFFINITY=" + config.thread_affinity +
                          " has no usable core for local rank " + std::to_string(local_rank) +
                          "; the engine thread is not pinned.");
  }
}

}  // namespace

Engine::Engine(Session session)
    : session_(std::move(session)),
      operations_([this] { wake(); }, session_.first_handle),
      groups_(session_.epoch, session_.me, session_.size()),
      timeline_(session_.timeline ? session_.timeline : trace::make_timeline()),
      has_silent_lanes_(!session_.links || session_.links->is_all_shared_memory()),
      gate_(session_.links ? session_.links->wake_fds() : std::vector<int>()),
      dispatcher_(session_.me, operations_, groups_, *session_.backends, *timeline_, counters_),
      planner_(planner_options(), operations_, dispatcher_, counters_, planner_actions()),
      liveness_(session_.me, session_.size(), seconds(session_.config.peer_timeout_s), monotonic_now()),
      is_done_(static_cast<size_t>(session_.size()), false) {
  const std::vector<std::vector<Rank>>& sets = session_.all->front().process_sets;
  int32_t id = 1;
  for (const std::vector<Rank>& ranks : sets)
    if (std::cmp_not_equal(ranks.size(), session_.size())) groups_.add(id++, ranks);
  if (is_coordinator()) {
    coordinator_ = std::make_unique<control::Coordinator>(coordinator_options(session_, groups_));
  }
  const std::string& path = session_.config.timeline;
  if (!path.empty() && path != "DYNAMIC") {
    const Status started = start_timeline(path, session_.config.timeline_mark_cycles, true);
    if (!started.is_ok()) RUEDA_LOG(kError, started.why);  // training goes on without it
  }
}

Result<std::shared_ptr<Engine>> Engine::start(Session session) {
  std::shared_ptr<Engine> engine(new Engine(std::move(session)));
  Status status = start_thread(engine->thread_, "the engine", [engine = engine.get()] { engine->run(); });
  if (!status.is_ok()) return status;
  return engine;
}

Engine::~Engine() {
  shutdown();
  stop_timeline();  // where the thread never ran
}

void Engine::shutdown() {
  is_leaving_.store(true);
  wake();
  // Bounded: ordered operations move, or a peer that does not is lost after RUEDA_PEER_TIMEOUT_SECONDS.
  if (thread_.joinable()) thread_.join();
}

void Engine::run() {
  prctl(PR_SET_NAME, "rueda-engine");
  const DefaultFloatingPoint arithmetic;
  pin_thread(session_.config, session_.place.local_rank);
  std::unique_lock lock(mutex_);
  last_moved_ = monotonic_now();
  while (phase_ != Phase::kClosed) {
    if (cycle()) {
      last_moved_ = monotonic_now();
    } else if (phase_ != Phase::kClosed) {
      idle(lock);
    }
  }
  lock.unlock();
  operations_.close(shut_down_status(leaver_));  // whatever ended the loop, nobody waits for ever
  stop_timeline();
}

bool Engine::cycle() {
  bool moved = collect_submissions();
  if (session_.links) {
    moved = session_.links->progress(session_.on_data) || moved;
    moved = handle_frames() || moved;
    handle_losses();
    if (phase_ == Phase::kClosed) return true;
    send_trace_batches();
  }
  const Nanos now = monotonic_now();
  if (coordinator_) moved = coordinate(now) || moved;
  moved = dispatcher_.progress() || moved;
  moved = planner_.progress(now) || moved;
  planner_.watch(now);
  if (drains_after_plan_ && !planner_.holds_back()) begin_draining(first_leaver_);
  if (!dispatcher_.failure().is_ok() && end_broken_epoch(now)) return true;
  if (session_.links) watch_peers(now);
  advance_closing();
  return moved;
}

// Something failed on this rank alone. When a peer was lost, the coordinator's verdict names it and may be on
// its way.
bool Engine::end_broken_epoch(Nanos now) {
  const Status& why = dispatcher_.failure();
  if (failure_deadline_ == 0) failure_deadline_ = why.code == Code::kPeerLost ? now + kFailureWait : now;
  if (now < failure_deadline_) return false;
  const Facts& mine = (*session_.all)[static_cast<size_t>(session_.me)];
  fail({why.code, describe(session_.me, mine) + " failed: " + why.why}, -1, true);
  return true;
}

bool Engine::collect_submissions() {
  const std::vector<std::shared_ptr<Operation>> submitted = operations_.take_submitted();
  if (submitted.empty()) return false;
  if (phase_ != Phase::kRunning) return true;  // they fail when draining ends
  std::vector<control::Request> requests;
  for (const std::shared_ptr<Operation>& operation : submitted) {
    if (planner_.take(operation)) continue;
    for (const Tensor& tensor : operation->tensors) requests.push_back(tensor.request);
  }
  if (!requests.empty()) negotiate(requests);
  return true;
}

void Engine::negotiate(std::span<const control::Request> requests) {
  for (const control::Request& request : requests) trace_negotiation(TraceKind::kBegin, request);
  if (!coordinator_) return send_requests(requests);
  planner_.saw_submissions(requests);
  coordinator_->submit(session_.me, {requests.begin(), requests.end()}, monotonic_now(), timeline_.get());
}

// On rank 0 the coordinator traces what all ranks do.
void Engine::trace_negotiation(TraceKind kind, const control::Request& request) {
  if (is_coordinator() || request.what == Collective::kJoin) return;
  trace_wait(kind, request.name, "NEGOTIATE_" + std::string(name_of(request.what)));
}

void Engine::trace_wait(TraceKind kind, const std::string& name, std::string_view phase) {
  if (!timeline_->is_on()) return;
  if (kind == TraceKind::kEnd) phase = {};
  timeline_->emit({.kind = kind, .when = monotonic_now(), .track = name, .name = phase});
}

// All requests of a group travel in one frame; frames are cut between groups.
void Engine::send_requests(std::span<const control::Request> requests) {
  Bytes payload = control::encode(planner_.plans_begun(), requests);
  size_t cut = requests.size() / 2;
  while (cut < requests.size() && requests[cut].group_index != 0) ++cut;
  if (payload.size() > kMaxFrameBytes && cut > 0 && cut < requests.size()) {
    send_requests(requests.first(cut));
    send_requests(requests.subspan(cut));
    return;
  }
  send(kCoordinator, control::FrameType::kRequests, std::move(payload));
  count(counters_.negotiation_frames);
}

bool Engine::coordinate(Nanos now) {
  if (phase_ != Phase::kRunning) return false;
  if (now >= next_stall_check_) check_stalls(now);
  if (planner_.holds_back() || dispatcher_.backlog() >= kMaxBacklog || now < next_round_) return false;
  std::vector<control::Response> responses = coordinator_->take_ready(now, timeline_.get());
  if (responses.empty()) return false;
  next_round_ = now + static_cast<Nanos>(session_.config.cycle_time_ms * static_cast<double>(kMillisecond));
  trace_round(now);
  planner_.saw_responses(responses);
  if (session_.links) broadcast_responses(responses);
  accept(std::move(responses));
  planner_.propose(*coordinator_, now, timeline_.get());
  return true;
}

void Engine::trace_round(Nanos now) {
  if (timeline_->is_on()) timeline_->emit({.kind = TraceKind::kCycle, .when = now, .name = "CYCLE_START"});
}

void Engine::broadcast_responses(std::span<const control::Response> responses) {
  const Bytes payload = control::encode(responses);
  if (payload.size() > kMaxFrameBytes && responses.size() > 1) {  // thousands of ranks in an alltoall
    broadcast_responses(responses.first(responses.size() / 2));
    broadcast_responses(responses.subspan(responses.size() / 2));
    return;
  }
  session_.links->broadcast_frame(control::FrameType::kResponses, payload);
  count(counters_.control_frames, session_.size() - 1);
  count(counters_.negotiation_frames, session_.size() - 1);
}

void Engine::accept(std::vector<control::Response> responses) {
  for (control::Response& response : responses) {
    if (planner_.accept(response)) continue;
    if (timeline_->is_on() && !is_coordinator()) {
      const Nanos now = monotonic_now();
      for (const control::Entry& entry : response.entries) {
        if (response.what == Collective::kJoin || !operations_.lookup(response.process_set, entry.name))
          continue;
        timeline_->emit({.kind = TraceKind::kEnd, .when = now, .track = entry.name});
      }
    }
    dispatcher_.enqueue(std::move(response));
  }
}

void Engine::check_stalls(Nanos now) {
  for (const control::StallReport& report : coordinator_->check_stalls(now)) {
    if (report.is_fatal)
      RUEDA_LOG(kError, report.text);
    else
      RUEDA_LOG(kWarning, report.is_news ? report.text : report.short_text);
    if (session_.links) {
      const auto text = std::as_bytes(std::span(report.short_text));
      session_.links->broadcast_frame(control::FrameType::kStallReport, Bytes(text.begin(), text.end()));
    }
    if (report.is_fatal) {
      fail({Code::kStalled, "Horovod has been shut down. " + report.text}, -1, true);
      return;
    }
  }
  next_stall_check_ = coordinator_->next_check(now);
}

void Engine::send(Rank peer, control::FrameType type, Bytes payload) {
  session_.links->send_frame(peer, type, std::move(payload));
  count(counters_.control_frames);
}

void Engine::begin_draining(Rank leaver) {
  if (phase_ != Phase::kRunning) return;
  if (leaver_.empty() && leaver >= 0 && leaver < session_.size())
    leaver_ = describe(leaver, (*session_.all)[static_cast<size_t>(leaver)]);
  first_leaver_ = first_leaver_ < 0 ? leaver : first_leaver_;
  if (planner_.holds_back()) {  // coordinator: first it must be known how far all ranks are
    drains_after_plan_ = true;
    return planner_.depart("a rank leaves");
  }
  phase_ = Phase::kDraining;
  if (coordinator_ && session_.links)
    session_.links->broadcast_frame(control::FrameType::kShutdown, control::encode_rank(first_leaver_));
}

void Engine::advance_closing() {
  if (is_leaving_ && !has_asked_to_leave_ && phase_ == Phase::kRunning) {
    has_asked_to_leave_ = true;
    if (coordinator_)
      begin_draining(session_.me);
    else
      send(kCoordinator, control::FrameType::kShutdown, {});
  }
  if (phase_ == Phase::kDraining && dispatcher_.is_idle()) {
    operations_.close(shut_down_status(leaver_));
    phase_ = Phase::kStopped;
    is_done_[static_cast<size_t>(session_.me)] = true;
    if (session_.links && !coordinator_) {
      stop_timeline();  // its last events must reach rank 0 before the farewell; rank 0 writes until all are
                        // in
      send_trace_batches();
      send(kCoordinator, control::FrameType::kDone, {});
    }
  }
  if (phase_ == Phase::kStopped && coordinator_ &&
      std::all_of(is_done_.begin(), is_done_.end(), [](bool d) { return d; })) {
    if (session_.links) session_.links->broadcast_frame(control::FrameType::kDone, {});
    flush_frames(kSecond);
    phase_ = Phase::kClosed;
  }
}

void Engine::flush_frames(Nanos at_most) {
  if (!session_.links) return;
  const Deadline deadline = Deadline::after(at_most);
  while (session_.links->has_unsent_frames() && !deadline.is_past()) {
    if (!session_.links->progress(session_.on_data)) {
      session_.links->sleep(Deadline::at(std::min(deadline.when(), monotonic_now() + kMillisecond)));
    }
  }
}

}  // namespace rueda::runtime
