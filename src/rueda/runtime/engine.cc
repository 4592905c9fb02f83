#include "rueda/runtime/engine.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rueda/base/log.h"

namespace rueda::runtime {
namespace {

constexpr Nanos kLeavingLook = 10 * kMillisecond;  // between two looks, while ranks leave
constexpr int kCloseLooks = 4;                     // at the backend, about 3 us each

// With so many ranks on a core, each waits for the others' turns for longer than it would yield.
constexpr Rank kCrowdedRanksPerCore = 4;

bool is_crowded(const Session& session) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return session.place.local_size > kCrowdedRanksPerCore * std::max(cores, 1L);
}

Driver::Options driver_options(const Session& session) {
  return {.doorbell = session.doorbell.get(),
          .wake_fds = session.links ? session.links->wake_fds() : std::vector<int>(),
          .has_silent_channels = !session.links || session.links->are_silent(),
          .spans_hosts = !is_one_host(*session.all),
          .is_crowded = is_crowded(session),
          .affinity = session.config.thread_affinity,
          .local_rank = session.place.local_rank};
}

}  // namespace

Engine::Engine(Session session)
    : session_(std::move(session)),
      hierarchy_(session_.me, *session_.all),
      ready_streams_(session_.devices.get()),
      operations_([this] { driver_.wake(); }, session_.first_handle, session_.first_prepared,
                  session_.size() > 1 ? Operations::EndNow()
                                      : [this](Operation& one) { return submissions_.end_now(one); }),
      groups_(session_.epoch, session_.me, session_.size(), session_.process_sets),
      recording_(session_.timeline, session_.me),
      channel_(session_.links.get(), hierarchy_, groups_.without_world(), counters_),
      dispatcher_(session_.me, operations_, groups_, *session_.backends, ready_streams_,
                  recording_.timeline(), counters_, session_.devices.get()),
      negotiation_({.session = session_,
                    .hierarchy = hierarchy_,
                    .groups = groups_,
                    .operations = operations_,
                    .dispatcher = dispatcher_,
                    .ready_streams = ready_streams_,
                    .channel = channel_,
                    .trace = recording_.timeline(),
                    .counters = counters_}),
      failure_detector_(hierarchy_, *session_.all, nanos(session_.config.peer_timeout_s, kSecond),
                        monotonic_now()),
      observer_(session_, hierarchy_, operations_, monotonic_now()),
      submissions_({.session = session_,
                    .groups = groups_,
                    .operations = operations_,
                    .observer = observer_,
                    .ready_streams = ready_streams_,
                    .residuals = dispatcher_.residuals(),
                    .counters = counters_,
                    .trace = recording_.timeline()}),
      shutdown_(session_.me, session_.size(), hierarchy_.parent()),
      actions_({.session = session_,
                .hierarchy = hierarchy_,
                .counters = counters_,
                .operations = operations_,
                .recording = recording_,
                .channel = channel_,
                .dispatcher = dispatcher_,
                .negotiation = negotiation_,
                .observer = observer_,
                .participation = participation_,
                .shutdown = shutdown_}),
      inbox_({.session = session_,
              .hierarchy = hierarchy_,
              .channel = channel_,
              .negotiation = negotiation_,
              .failure_detector = failure_detector_,
              .observer = observer_,
              .shutdown = shutdown_,
              .recording = recording_,
              .actions = actions_}),
      driver_(*this, driver_options(session_)) {
  failure_detector_.agents([this](Rank rank) { return observer_.agent_of(rank); });
  if (is_crowded(session_)) operations_.sleep_at_once();
  if (session_.meters) counters_.meters = session_.meters;
  recording_.begin_epoch(session_);
  const std::string& path = session_.config.timeline;
  if (!path.empty() && path != "DYNAMIC") {
    const Status started = recording_.start(path, session_.config.timeline_mark_cycles, true);
    if (!started.is_ok()) RUEDA_LOG(kError, started.why);  // training continues without it
  }
}

Result<std::shared_ptr<Engine>> Engine::start(Session session) {
  std::shared_ptr<Engine> engine(new Engine(std::move(session)));
  if (Status status = engine->driver_.start(); !status.is_ok()) return status;
  return engine;
}

Engine::~Engine() {
  shutdown();
  recording_.stop();  // if the thread never ran
}

void Engine::shutdown() {
  shutdown_.leave();
  driver_.wake();
  // Bounded: the ordered operations complete, or a silent peer is lost after RUEDA_PEER_TIMEOUT_SECONDS.
  driver_.join();
}

void Engine::ended() {
  operations_.close(actions_.shut_down_status());  // whatever ended the epoch, no thread may wait forever
  recording_.stop();
  recording_.write_flight_record();
}

bool Engine::turn() {
  // What is submitted while ranks leave fails when they have left.
  bool moved = shutdown_.is_running() ? negotiation_.take_submissions() : negotiation_.drop_submissions();
  if (session_.links) {
    moved = session_.links->progress(session_.on_data) || moved;
    moved = inbox_.handle_messages() || moved;
    inbox_.handle_losses();
    if (shutdown_.is_closed()) return true;
  }
  const Nanos now = monotonic_now();
  if (is_coordinator() && shutdown_.is_running()) {
    const Status stalled = negotiation_.report_stalls(now, observer_.waits_in_plan());
    if (!stalled.is_ok()) actions_.carry_out(FailureDetector::End{.why = stalled});
    if (shutdown_.is_closed()) return true;
    moved = negotiation_.begin_round(now) || moved;
  }
  moved = dispatcher_.progress() || moved;
  moved = negotiation_.run_plan(now) || moved;
  if (!dispatcher_.failure().is_ok())
    actions_.carry_out(failure_detector_.on_failure(dispatcher_.failure(), now));
  if (shutdown_.is_closed()) return true;
  if (session_.links) {
    if (observer_.take_news() && !is_coordinator()) actions_.send_facts(now);
    if (observer_.is_due(now)) look_around(now);
    actions_.carry_out(failure_detector_.tick(now));
    recording_.look_at_links(*session_.links, now, *counters_.meters);
  }
  note_participation(now);
  actions_.carry_out(shutdown_.tick(actions_.state_for_shutdown()));
  channel_.send_due(now);
  return moved;
}

bool Engine::look_closely(const std::atomic<bool>& is_done) {
  const bool is_on_wires = !dispatcher_.waits_on_memory();
  if (is_on_wires && !session_.links) return false;
  for (int look = 0; look < kCloseLooks && !is_done.load(std::memory_order_acquire); ++look) {
    if (is_on_wires && !session_.links->progress(session_.on_data)) continue;
    const bool has_moved = dispatcher_.progress();
    if (has_moved) note_participation(std::nullopt);
    if (has_moved || is_on_wires) return true;
  }
  return false;
}

Nanos Engine::next_event(Nanos now) const {
  const Nanos next = std::min({failure_detector_.next_event(), observer_.next_event(), channel_.next_event(),
                               negotiation_.next_event(now, shutdown_.is_running())});
  return shutdown_.is_running() ? next : std::min(next, now + kLeavingLook);
}

bool Engine::has_due_times(Nanos now) const {
  return !shutdown_.is_running() || failure_detector_.is_undecided() || negotiation_.has_due_times(now) ||
         channel_.next_event() != kLongestTime;
}

bool Engine::is_quiet() const {
  return operations_.is_empty() && dispatcher_.is_idle() && !channel_.has_unsent();
}

bool Engine::prepare_sleep() {
  if (operations_.has_submitted() || shutdown_.has_news()) return false;
  return session_.backends->prepare_sleep() && (!session_.links || session_.links->prepare_sleep());
}

void Engine::wake_up() { session_.backends->wake_up(); }

// It looks at the clock only when something changes, unless it is given the time.
void Engine::note_participation(std::optional<Nanos> now) {
  const bool is_waiting = negotiation_.awaits_answers();
  const bool in_any = is_waiting || !dispatcher_.is_idle();
  const bool in_world =
      in_any && (dispatcher_.order().is_in_world() || (is_waiting && negotiation_.awaits_world()));
  if (!participation_.is(in_world, in_any))
    participation_.note(in_world, in_any, now ? *now : monotonic_now());
}

void Engine::look_around(Nanos now) {
  const std::vector<Rank> late =
      observer_.look(negotiation_.place_in_plan(now), negotiation_.plan(),
                     negotiation_.waiting_longer_than(observer_.limit(), now), now, recording_.timeline());
  for (const control::PeerProcess& peer : observer_.held(now)) failure_detector_.held(peer, now);
  const auto look_at_host = [&](Rank peer) {
    failure_detector_.host_silence(peer, session_.links->host_silence(peer), now);
  };
  if (!is_coordinator()) return look_at_host(hierarchy_.parent());  // whom alone it watches
  for (Rank peer = 0; peer < session_.size(); ++peer)
    if (peer != session_.me) look_at_host(peer);
  for (const control::StragglerDetector::Wait& one : observer_.take_waits())
    counters_.meters->waited_for(one.rank, one.waited);
  for (const Rank rank : late) {
    if (rank != session_.me)
      channel_.send_routed(rank, control::MessageType::kShowStacks, {});
    else if (session_.show_stacks)
      session_.show_stacks();
  }
}

}  // namespace rueda::runtime
