#include "rueda/runtime/observer.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "rueda/base/log.h"
#include "rueda/base/process.h"
#include "rueda/kernels/not_finite.h"

namespace rueda::runtime {
namespace {

// A stopped process must be named within 2 s; it is seen twice before.
constexpr Nanos kLookEvery = kSecond / 2;
// How many ranks of its host a rank watches, those that follow it, besides the root, which watches all of its
// host.
constexpr size_t kWards = 3;
// What a process uses is looked at in this time at least.
constexpr Nanos kLongestUse = 3 * kSecond;
constexpr Nanos kShortestWait = kSecond;
constexpr Nanos kShortestSilence = kSecond;  // of a host; TCP tries a lost segment again after 200 ms

std::vector<Rank> watched_of(const Hierarchy& hierarchy, const std::vector<PeerInfo>& all) {
  const Rank me = hierarchy.me();
  std::vector<Rank> after, before;
  for (Rank rank = 0; std::cmp_less(rank, all.size()); ++rank)
    if (rank != me && share_pids(all, rank, me)) (rank > me ? after : before).push_back(rank);
  after.insert(after.end(), before.begin(), before.end());
  if (hierarchy.is_root()) return after;
  if (after.size() > kWards) after.resize(kWards);
  // If the root is lost, every rank says why; if a leader is, those below it do.
  for (const Rank above : {hierarchy.root(), hierarchy.parent()})
    if (share_pids(all, above, me) && std::ranges::find(after, above) == after.end()) after.push_back(above);
  return after;
}

// By rank: the first rank of its host.
std::vector<Rank> hosts_of(const std::vector<PeerInfo>& all) {
  std::map<std::string_view, Rank> first;
  std::vector<Rank> hosts;
  for (const PeerInfo& info : all)
    hosts.push_back(first.try_emplace(info.host_key, static_cast<Rank>(hosts.size())).first->second);
  return hosts;
}

// The first rank that is not on the host of the root.
bool judges_first(const Hierarchy& hierarchy) { return hierarchy.me() == hierarchy.remote_probe(); }

control::Judge::Options judge_options(const Session& session, const Hierarchy& hierarchy) {
  return {.me = session.me,
          .ranks = session.size(),
          .limit = nanos(session.config.verdict_s, kSecond),
          .hosts = hierarchy.is_root() ? hosts_of(*session.all) : std::vector<Rank>(),
          .ends_stopped_ranks = session.has_elastic_launcher,
          .judges_first = judges_first(hierarchy),
          .root = hierarchy.root(),
          .parents = hierarchy.is_root() ? hierarchy.parents() : std::vector<Rank>()};
}

}  // namespace

Observer::Observer(const Session& session, const Hierarchy& hierarchy, const Operations& operations,
                   Nanos now)
    : session_(session),
      hierarchy_(hierarchy),
      operations_(operations),
      judge_(judge_options(session, hierarchy), now),
      straggler_detector_(session.size()),
      is_silent_(session.config.stall_check_disabled),
      judges_first_(judges_first(hierarchy)),
      watched_(watched_of(hierarchy, *session.all)),
      next_look_(session.links ? now : kLongestTime) {
  judge_.on_agents([this](Rank rank) { return agent_of(rank); });
}

std::string Observer::describe(Rank rank) const {
  const std::vector<PeerInfo>& all = *session_.all;
  return runtime::describe(rank, all[static_cast<size_t>(rank)], all[static_cast<size_t>(session_.me)]);
}

void Observer::check_numbers(const Tensor& tensor, const void* input) {
  if (!session_.config.check_numbers || input == nullptr || tensor.memory.kind != MemoryKind::kHost) return;
  const int64_t call = checked_.fetch_add(1);
  const int64_t element = kernels::first_not_finite(tensor.request.dtype, input, tensor.count());
  if (element < 0) return;
  const std::lock_guard lock(mutex_);
  if (not_finite_) return;
  not_finite_ = {.tensor = tensor.request.name, .element = element, .call = call};
  has_news_ = true;
}

control::Facts Observer::facts(const control::Planner::Progress& place, Nanos now) {
  const Nanos input_since = input_since_.load();
  const bool is_blocked = operations_.is_awaited(now);
  // It takes some 5 us for each thread of the process. A blocked rank is late for nobody, and this would
  // delay what it waits for.
  if (!is_blocked || now - use_.at >= kLongestUse) use_ = process_use();
  control::Facts facts{.use = use_,
                       .input_for = input_since == 0 ? 0 : std::max<Nanos>(now - input_since, 1),
                       .is_blocked = is_blocked,
                       .plan_number = place.plan_number,
                       .plan_started = place.started,
                       .plan_open = place.open,
                       .plan_stuck_for = place.stuck_for,
                       .plan_lacks = place.lacks,
                       .participation = {},
                       .peer_processes = peer_processes_,
                       .not_finite = {},
                       .unreached = unreached()};
  const std::lock_guard lock(mutex_);
  facts.not_finite = not_finite_;
  return facts;
}

std::vector<control::Unreached> Observer::unreached() const {
  std::vector<control::Unreached> found;
  if (!session_.links) return found;
  for (Rank peer = 0; peer < session_.size(); ++peer) {
    if (peer == session_.me) continue;
    const Nanos silence = session_.links->host_silence(peer).value_or(0);
    if (silence >= kShortestSilence) found.push_back({.of = peer, .age = silence});
  }
  return found;
}

void Observer::look_at_processes(Nanos now) {
  peer_processes_.clear();
  for (const Rank watched : watched_) {
    const PeerInfo& info = (*session_.all)[static_cast<size_t>(watched)];
    const ProcessLook look = look_at_process(info.pid, info.began);
    const control::PeerProcess peer{.of = watched, .state = look.state};
    const bool is_held = look.state == ProcessState::kStopped || look.state == ProcessState::kTraced;
    if (is_held) peer_processes_.push_back(peer);
    // If rank 0 is held, the rank before it says so: rank 0 cannot.
    if (is_coordinator() || (watched == hierarchy_.root() && watched == watched_.front()))
      judge_.on_peer(peer, now);
  }
}

std::vector<control::PeerProcess> Observer::held(Nanos now) const {
  if (is_coordinator()) return judge_.held(now);
  std::vector<control::PeerProcess> found = peer_processes_;
  found.insert(found.end(), held_elsewhere_.begin(), held_elsewhere_.end());
  return found;
}

bool Observer::is_root_watched(const status::JobNews& news) const {
  const std::vector<PeerInfo>& all = *session_.all;
  const auto is_held = [&](Rank rank) {
    return std::ranges::find(news.held, rank, &status::HeldProcess::rank) != news.held.end();
  };
  for (Rank rank = 0; std::cmp_less(rank, all.size()); ++rank)
    if (rank != hierarchy_.root() && share_pids(all, rank, hierarchy_.root()) && !is_held(rank)) return true;
  return false;
}

// What the agents of other hosts see. All hosts have the same news, so nobody passes them on.
void Observer::read_news(Nanos now) {
  held_elsewhere_.clear();
  if (session_.news_file.empty()) return;
  job_news_ = status::read_news(session_.news_file, now);
  if (!job_news_) return;
  const auto& [news, written] = *job_news_;
  for (const status::HeldProcess& one : news.held) {
    if (one.rank >= session_.size() || share_pids(*session_.all, one.rank, session_.me)) continue;
    const control::PeerProcess peer{.of = one.rank, .state = one.state};
    held_elsewhere_.push_back(peer);
    const bool is_said_here = one.rank == hierarchy_.root() && judges_first_ && !is_root_watched(news);
    if (is_coordinator() || is_said_here) judge_.on_peer(peer, now, written);
  }
}

control::Agent Observer::agent_of(Rank rank) const {
  if (!job_news_) return control::Agent::kUnknown;
  const std::vector<Rank>& without = job_news_->news.without_agent;
  const bool is_silent = std::ranges::find(without, rank) != without.end();
  return is_silent ? control::Agent::kSilent : control::Agent::kAnswers;
}

std::vector<Rank> Observer::look(const control::Planner::Progress& place, const control::PlanLedger& plan,
                                 const std::vector<control::StalledTensor>& waits, Nanos now,
                                 TraceSink& trace) {
  next_look_ = now + kLookEvery;
  look_at_processes(now);
  read_news(now);
  if (is_coordinator()) {
    judge_.on_facts(session_.me, facts(place, now), now);
    const std::lock_guard lock(mutex_);
    stragglers_ = straggler_detector_.stragglers(now);
  } else if (judges_first_) {
    judge_.on_unreached(unreached(), now);
  }
  judge_.look_at(plan);
  in_plan_ = judge_.waits_in_plan();
  std::erase_if(in_plan_, [](const control::StalledTensor& wait) { return wait.age < kShortestWait; });
  std::vector<Rank> explained;
  for (const control::Verdict& verdict : judge_.tick(waits, now, stragglers_)) {
    if (is_silent_) continue;
    const std::string line = control::verdict_line(verdict, [this](Rank rank) { return describe(rank); });
    RUEDA_LOG(kWarning, line);
    trace.record(instant_span(SpanKind::kVerdict, line));
    if (control::is_explained_by_stacks(verdict)) explained.push_back(verdict.rank);
  }
  return explained;
}

std::vector<control::StragglerDetector::Straggler> Observer::stragglers() const {
  const std::lock_guard lock(mutex_);
  return stragglers_;
}

void Observer::lost(Rank rank, std::string_view loss, const std::string& why) {
  if (loss.empty()) return;
  // Rank 0 says it, and the next rank if rank 0 is lost; all ranks have it in their errors.
  const Rank speaker = rank == hierarchy_.root() ? hierarchy_.successor() : hierarchy_.root();
  if (session_.me == speaker) RUEDA_LOG(kError, "Verdict: " + std::string(loss) + ": " + why);
}

}  // namespace rueda::runtime
