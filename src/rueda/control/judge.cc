#include "rueda/control/judge.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace rueda::control {
namespace {

constexpr Nanos kTickEvery = kSecond / 4;
// A rank that was itself stopped for so long has heard of nobody meanwhile.
constexpr Nanos kWasAway = 2 * kSecond;
// What a rank has said is old news after a few missed heartbeats.
constexpr Nanos kFactsLast = 3 * kSecond;
constexpr Nanos kPeerProcessLasts = 3 * kSecond;
// Tools that take a stack stop a process for some milliseconds, so it must be seen stopped twice.
constexpr Nanos kHeldFor = 300 * kMillisecond;
constexpr Nanos kSampleSpan = 4 * kSecond;  // over which CPU time and page faults are counted
constexpr Nanos kShortestSample = kSecond / 2;
// A thread that computes uses a core, or most of it on a machine that is shared; one that sleeps or waits for
// another process uses next to nothing.
constexpr int kComputes = 25;  // percent of a core
// A process that reads its own memory back from disk. A rank that starts reads its libraries, but has swapped
// nothing out.
constexpr double kSwapFaultsPerSecond = 50;
// It takes so long from the last word of a host until it is known that it acknowledges nothing.
constexpr Nanos kUntilUnreachable = 2 * kSecond;
// Ranks answer once a second, and later where they get no core.
constexpr Nanos kLeastSilence = 3 * kSecond;
// A leader answers once a second, too. If it is not heard of for so long, nothing is known about those below.
constexpr Nanos kLeaderAway = 2 * kSecond;
// Facts come once a second from every rank.
constexpr Nanos kAllHaveSpoken = 2 * kSecond;
constexpr Nanos kSayAgainAfter = 30 * kSecond;  // if the fault of a process has changed its class

bool holds(const std::vector<Rank>& ranks, Rank rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

bool is_held_state(ProcessState state) {
  return state == ProcessState::kStopped || state == ProcessState::kTraced;
}

bool intersect(const std::vector<Rank>& some, const std::vector<Rank>& others) {
  return std::ranges::any_of(some, [&](Rank rank) { return holds(others, rank); });
}

// Two groups wait for each other: the smaller one is at fault, or that without the lowest rank.
bool are_at_fault(const std::vector<Rank>& these, const std::vector<Rank>& those) {
  if (these.size() != those.size()) return these.size() < those.size();
  return std::ranges::min(these) > std::ranges::min(those);
}

// The tensor in which this rank waits for ranks that wait for it in `wait`: a circle.
const StalledTensor* other_of_circle(Rank rank, const StalledTensor& wait,
                                     const std::vector<StalledTensor>& waits) {
  for (const StalledTensor& other : waits)
    if (holds(other.waiting, rank) && intersect(other.missing, wait.waiting)) return &other;
  return nullptr;
}

// Without hosts, each rank counts as a host of its own.
std::vector<Rank> hosts_or_one(const Judge::Options& options) {
  if (!options.hosts.empty()) return options.hosts;
  std::vector<Rank> hosts(static_cast<size_t>(options.ranks));
  std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

}  // namespace

Judge::Judge(const Options& options, Nanos now)
    : options_(options),
      known_(static_cast<size_t>(options.ranks)),
      late_(options.limit),
      reachability_(options.me, hosts_or_one(options)),
      last_tick_(now),
      next_tick_(now) {
  excuse_all(now);
}

void Judge::excuse_all(Nanos now) {
  for (Known& one : known_) one.heard = now;
}

// While a leader was not heard of, nobody below it could be.
void Judge::heard(Rank from, Nanos now) {
  const bool was_away = now - known(from).heard > kLeaderAway;
  known(from).heard = now;
  if (!was_away || options_.parents.empty()) return;
  for (Rank rank = 0; std::cmp_less(rank, known_.size()); ++rank)
    for (Rank above = parent_of(rank); above >= 0; above = parent_of(above))
      if (above == from) known(rank).heard = std::max(known(rank).heard, now);
}

Rank Judge::parent_of(Rank rank) const {
  if (options_.parents.empty()) return -1;
  const Rank parent = options_.parents[static_cast<size_t>(rank)];
  return parent == options_.root ? -1 : parent;
}

bool Judge::is_behind_silence(Rank rank, Nanos now) const {
  for (Rank above = parent_of(rank); above >= 0; above = parent_of(above))
    if (now - known(above).heard > kLeaderAway) return true;
  return false;
}

void Judge::on_facts(Rank from, Facts facts, Nanos now) {
  for (const PeerProcess& peer : facts.peer_processes)
    if (std::cmp_less(peer.of, known_.size())) on_peer(peer, now);
  reachability_.on_facts(from, facts.unreached, now);
  // Neither end of a connection that acknowledges nothing can end a wait.
  for (const Unreached& other : facts.unreached)
    if (std::cmp_less(other.of, known_.size())) known(from).held_until = known(other.of).held_until = now;
  Known& one = known(from);
  one.samples.push_back({.when = now, .use = facts.use});
  while (one.samples.size() > 2 && now - one.samples[1].when >= kSampleSpan) one.samples.pop_front();
  one.facts = std::move(facts);
  one.facts_at = now;
}

void Judge::on_peer(const PeerProcess& peer, Nanos now, Nanos seen) {
  Known& one = known(peer.of);
  if (one.state != peer.state || now - one.state_heard > kPeerProcessLasts) {
    one.state_since = now;
    one.state_began = seen;
  }
  one.state = peer.state;
  one.state_heard = now;
  one.state_seen = seen;
}

// since: what the rank did before others waited for it says nothing about why they wait.
int Judge::core_percent(Rank rank, Nanos since) const {
  const std::deque<Sample>& samples = known(rank).samples;
  const auto first = std::ranges::find_if(samples, [since](const Sample& one) { return one.when >= since; });
  if (first == samples.end()) return -1;
  const Nanos passed = samples.back().use.at - first->use.at;
  // Threads that have ended take their time with them.
  const Nanos used = std::max<Nanos>(samples.back().use.cpu - first->use.cpu, 0);
  return passed < kShortestSample ? -1 : static_cast<int>(used * 100 / passed);
}

bool Judge::is_swapping(Rank rank) const {
  const std::deque<Sample>& samples = known(rank).samples;
  if (samples.size() < 2 || samples.back().use.swapped_bytes == 0) return false;
  const double passed = static_cast<double>(samples.back().when - samples.front().when) / kSecond;
  const auto faults = samples.back().use.major_faults - samples.front().use.major_faults;
  return static_cast<double>(faults) > kSwapFaultsPerSecond * passed;
}

bool Judge::is_held(const Known& one, Nanos now) {
  const bool is_fresh =
      one.state_heard - one.state_since >= kHeldFor && now - one.state_heard <= kPeerProcessLasts;
  return is_fresh && is_held_state(one.state);
}

// Of a process on another host it is told when it is held, and nothing when it goes on.
Nanos Judge::end_of(const Verdict& verdict, Nanos now) const {
  const Known& one = known(verdict.rank);
  if (verdict.fault != Fault::kStopped && verdict.fault != Fault::kDebugger) return now;
  return is_held_state(one.state) ? one.state_seen : one.state_began;
}

std::vector<PeerProcess> Judge::held(Nanos now) const {
  std::vector<PeerProcess> found;
  for (Rank rank = 0; std::cmp_less(rank, known_.size()); ++rank)
    if (is_held(known(rank), now)) found.push_back({.of = rank, .state = known(rank).state});
  return found;
}

bool Judge::is_process_judged(Rank rank, Nanos now, Verdict& verdict) const {
  if (rank == options_.me) return false;  // it runs, whatever was true a while ago
  const Known& one = known(rank);
  verdict.rank = rank;
  if (is_held(one, now)) {
    verdict.fault = one.state == ProcessState::kStopped ? Fault::kStopped : Fault::kDebugger;
    verdict.age = now - one.state_began;
    verdict.is_ended_soon = options_.ends_stopped_ranks;
    return true;
  }
  // Only rank 0 hears of all ranks. The others judge what they see.
  const bool is_mine = is_root() || (rank == options_.root && options_.judges_first);
  if (!is_mine) return false;
  const Nanos limit = std::max(options_.limit, kLeastSilence);
  // While it cannot be reached, nothing is known about its process.
  if (reachability_.silence(rank, now) > 0) {
    verdict.fault = Fault::kUnreachable;
    verdict.age = reachability_.host_silence(rank, now);
    // Rank 0 may be heard of while a connection for data is cut.
    if (!is_root()) verdict.age = std::min(verdict.age, now - one.heard);
    verdict.agent = agent_of_(rank);
    return verdict.age >= limit;
  }
  const bool is_here =
      options_.hosts.empty() || options_.hosts[static_cast<size_t>(rank)] == options_.hosts[0];
  if (!is_root() || now - one.heard < limit + (is_here ? 0 : kUntilUnreachable)) return false;
  if (is_behind_silence(rank, now)) return false;
  verdict.fault = Fault::kSilent;
  verdict.age = now - one.heard;
  return true;
}

Verdict Judge::late(Rank rank, const StalledTensor& wait, Nanos age, const StalledTensor* other,
                    Nanos now) const {
  const Known& one = known(rank);
  Verdict verdict{.rank = rank, .age = age, .tensor = wait.name, .waiting = wait.waiting};
  verdict.core_percent = core_percent(rank, now - age);
  if (is_swapping(rank)) {
    verdict.fault = Fault::kSwapping;
  } else if (one.facts.input_for > 0) {
    verdict.fault = Fault::kLateInInput;
  } else if (other != nullptr && (one.facts.is_blocked || verdict.core_percent < kComputes)) {
    verdict.fault = Fault::kOrder;
    verdict.other = other->name;
  } else if (verdict.core_percent >= kComputes) {
    verdict.fault = Fault::kLateInCompute;
  }
  return verdict;
}

Judge::Found Judge::find_late(const std::vector<StalledTensor>& waits, const std::set<Rank>& held,
                              Nanos now) const {
  Found found;
  for (const StalledTensor& wait : waits) {
    if (wait.age < options_.limit || wait.waiting.empty()) continue;
    for (const Rank rank : wait.missing) {
      if (held.contains(rank)) continue;
      // Before the first facts nothing is known, and facts that no longer come are the news.
      if (known(rank).facts_at == 0) continue;
      // While its process was held, that was what the others waited for.
      const Nanos age = std::min(wait.age, now - known(rank).held_until);
      if (age < options_.limit) continue;
      const StalledTensor* other = other_of_circle(rank, wait, waits);
      // Others hold it up: it waits for them in another collective, or in a transfer that does not go on.
      if (known(rank).facts.is_blocked && other == nullptr) continue;
      if (other != nullptr && !are_at_fault(wait.missing, wait.waiting)) continue;
      Verdict verdict = late(rank, wait, age, other, now);
      const bool is_known = verdict.core_percent >= 0 || age >= options_.limit + kFactsLast;
      if (!is_known) continue;
      const auto [at, is_new] = found.try_emplace(rank, verdict);
      if (!is_new && at->second.age < verdict.age) at->second = std::move(verdict);
    }
  }
  return found;
}

std::vector<StalledTensor> Judge::waits_in_plan() const {
  std::vector<const Facts*> facts;
  for (const Known& one : known_) facts.push_back(&one.facts);
  return plan_waits(facts, plan_);
}

std::vector<Verdict> Judge::tick(const std::vector<StalledTensor>& waits, Nanos now,
                                 const std::vector<StragglerDetector::Straggler>& stragglers) {
  if (now < next_tick_) return {};
  if (now - last_tick_ > kWasAway) excuse_all(now);
  last_tick_ = now;
  next_tick_ = now + kTickEvery;
  Found processes;
  for (Rank rank = 0; std::cmp_less(rank, known_.size()); ++rank)
    if (Verdict verdict; is_process_judged(rank, now, verdict)) processes.try_emplace(rank, verdict);
  std::vector<StalledTensor> all = waits_in_plan();
  all.insert(all.end(), waits.begin(), waits.end());
  std::vector<Verdict> news = compare(processes, now);
  std::set<Rank> held;
  for (Rank rank = 0; std::cmp_less(rank, known_.size()); ++rank) {
    const Nanos silence = reachability_.silence(rank, now);
    if (!processes.contains(rank) && silence == 0 && !is_behind_silence(rank, now)) continue;
    held.insert(rank);
    // After an outage TCP tries again after as long as it has lasted, at the latest.
    if (silence > 0 && is_root()) known(rank).heard = std::max(known(rank).heard, now + silence);
    known(rank).held_until = now;
    known(rank).samples.clear();
  }
  for (Verdict& verdict : reachability_.cut_links(held, std::max(options_.limit, kLeastSilence), now))
    news.push_back(std::move(verdict));
  const Found late = find_late(all, held, now);
  for (Verdict& verdict : late_.tick(late, held, now)) news.push_back(std::move(verdict));
  std::set<Rank> told = std::move(held);
  for (const auto& [rank, verdict] : late) told.insert(rank);
  for (Verdict& verdict : find_slow(stragglers, told, now)) news.push_back(std::move(verdict));
  for (Verdict& verdict : find_not_finite(now)) news.push_back(std::move(verdict));
  return news;
}

std::vector<Verdict> Judge::find_slow(const std::vector<StragglerDetector::Straggler>& stragglers,
                                      const std::set<Rank>& told, Nanos now) {
  std::vector<Verdict> news = slow_.tick(stragglers, told, now);
  for (Verdict& verdict : news) verdict.core_percent = core_percent(verdict.rank, now - kSampleSpan);
  return news;
}

// After one rank has brought NaN, all ranks have it in their results and soon in their inputs. So this is
// said once, of those that had it first.
std::vector<Verdict> Judge::find_not_finite(Nanos now) {
  std::vector<Verdict> first;
  if (has_said_not_finite_) return first;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Known& one : known_)
    if (one.facts.not_finite) least = std::min(least, one.facts.not_finite->call);
  if (least == std::numeric_limits<int64_t>::max()) return first;
  if (not_finite_since_ == 0) not_finite_since_ = now;
  if (now - not_finite_since_ < kAllHaveSpoken) return first;
  has_said_not_finite_ = true;
  for (Rank rank = 0; std::cmp_less(rank, known_.size()); ++rank) {
    const std::optional<NotFinite>& found = known(rank).facts.not_finite;
    if (!found || found->call != least) continue;
    first.push_back({.fault = Fault::kNotFinite, .rank = rank, .tensor = found->tensor, .waiting = {}});
    first.back().element = found->element;
  }
  return first;
}

bool Judge::is_said(Verdict& verdict, Nanos now) {
  std::deque<Nanos>& times = said_times_[verdict.rank];
  while (!times.empty() && now - times.front() >= kOftenWithin) times.pop_front();
  if (times.size() >= kSaidOften && verdict.age < kSaidIfItLasts) return false;
  times.push_back(now);
  verdict.is_last_for_now = times.size() == kSaidOften;
  return true;
}

bool Judge::is_named_by_its_host(Rank rank, const Found& processes) const {
  if (options_.hosts.empty() || processes.at(rank).fault != Fault::kUnreachable) return false;
  return std::ranges::any_of(processes, [&](const auto& other) {
    return other.first < rank && other.second.fault == Fault::kUnreachable &&
           options_.hosts[static_cast<size_t>(other.first)] == options_.hosts[static_cast<size_t>(rank)];
  });
}

// What is new, and what is over.
std::vector<Verdict> Judge::compare(const Found& processes, Nanos now) {
  std::vector<Verdict> news;
  for (auto at = said_.begin(); at != said_.end();) {
    if (processes.contains(at->first)) {
      ++at;
      continue;
    }
    Verdict over = at->second.verdict;
    over.is_over = true;
    over.age = std::max<Nanos>(end_of(over, now) - at->second.since, 0);
    news.push_back(std::move(over));
    at = said_.erase(at);
  }
  for (const auto& [rank, found] : processes) {
    Verdict verdict = found;
    const auto before = said_.find(rank);
    const bool is_new = before == said_.end();
    const bool has_changed =
        !is_new && before->second.verdict.fault != verdict.fault && now - before->second.at >= kSayAgainAfter;
    if (!is_new && !has_changed) continue;
    if (is_new && (is_named_by_its_host(rank, processes) || !is_said(verdict, now))) continue;
    said_[rank] = {.verdict = verdict, .since = is_new ? now - verdict.age : before->second.since, .at = now};
    news.push_back(std::move(verdict));
  }
  return news;
}

}  // namespace rueda::control
