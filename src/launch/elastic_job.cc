#include "launch/elastic_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rueda/membership/keys.h"
#include "rueda/store/ended.h"

namespace rueda::launch {
namespace {

using membership::Member;
using membership::Uid;
using membership::View;

constexpr Nanos kStoppedTime = 5 * kSecond;
// An agent looks at its processes once a second, and says that one is stopped when it has seen it twice.
constexpr Nanos kSeenFor = kSecond;

membership::Rules rules_of(const ElasticOptions& options) {
  return {.least = options.least,
          .most = options.most,
          .most_resets = options.reset_limit,
          .timeout = nanos(options.timeout_s, kSecond)};
}

Uid uid_of(const Slots::Place& place) { return fmt::format("{}:{}#{}", place.host, place.slot, place.life); }

}  // namespace

ElasticJob::ElasticJob(const ElasticOptions& options, int size, Effects effects)
    : options_(options), effects_(std::move(effects)), proposer_(rules_of(options)) {
  processes_.reserve(static_cast<size_t>(size));
  if (!options_.discovery_script.empty())
    discovery_.emplace(options_.discovery_script, options_.default_slots);
}

void ElasticJob::watch(PollSet& set) {
  set.watch(inbox_.fd(), POLLIN, [] {});  // tick() takes what has come
  if (discovery_) discovery_->watch(set);
}

void ElasticJob::begin(const std::vector<HostSlots>& hosts, std::span<const Placement> placements,
                       Nanos now) {
  wanted_ = offered_ = hosts;
  slots_.offer(hosts);
  for (size_t i = 0; i < placements.size(); ++i) {
    // Both fill one host after the other.
    const Slots::Place place = slots_.take(now).value();
    add(place, now).after = 1;
  }
  const int wanted = options_.most == 0 ? 0 : options_.most + options_.spares;
  if (!discovery_ && slots_.offered() < wanted)
    effects_.say(fmt::format(
        "--max-np and --spares ask for {} processes, and the hosts have {} slots; give more with -H", wanted,
        slots_.offered()));
}

ElasticJob::Process& ElasticJob::add(const Slots::Place& place, Nanos now) {
  numbers_.emplace(uid_of(place), static_cast<int>(processes_.size()));
  return processes_.emplace_back(Process{.place = place, .uid = uid_of(place), .started = now});
}

Status ElasticJob::open(std::unique_ptr<membership::Register> views, Nanos now) {
  views_ = std::move(views);
  View first{.number = 1, .members = {}, .lost = {}};
  for (const Process& one : processes_)
    first.members.push_back({.uid = one.uid, .host = one.place.host, .is_new = true});
  const Result<View> decided = views_->propose(first);
  if (!decided.is_ok()) return decided.status();
  proposer_.on_view(decided.value(), now);
  return Status::ok();
}

Variables ElasticJob::variables_of(int number) const {
  const Process& process = processes_[static_cast<size_t>(number)];
  const std::string timeout = fmt::format("{}", options_.timeout_s);
  const bool is_joiner = process.after == 0;
  return {{"RUEDA_JOINER", is_joiner ? "1" : "0"},
          {membership::kUidVariable, process.uid},
          {membership::kFirstViewVariable, is_joiner ? "0" : "1"},
          {membership::kTimeoutVariable, timeout},
          {"HOROVOD_ELASTIC_TIMEOUT", timeout},
          {"HOROVOD_ELASTIC", "1"}};
}

std::optional<int> ElasticJob::number_of(const Uid& uid) const {
  const auto at = numbers_.find(uid);
  return at == numbers_.end() ? std::nullopt : std::optional(at->second);
}

bool ElasticJob::has_member_ended_well() const {
  return std::ranges::any_of(proposer_.view().members, [this](const Member& one) {
    const Process& process = processes_[static_cast<size_t>(number_of(one.uid).value())];
    return process.has_ended && !process.has_failed;
  });
}

void ElasticJob::on_ended(const Ending& ending, Nanos now) {
  Process& process = processes_[static_cast<size_t>(ending.rank)];
  if (std::exchange(process.has_ended, true)) return;
  process.has_failed = ending.is_failure();
  slots_.end(process.place, process.has_failed, now - process.started, now);
  if (proposer_.view().rank_of(process.uid) >= 0) tell(common_commit_.end());
  tell_ended(ending);
  proposer_.on_gone(process.uid, now);
}

// Members that wait in an init of this view learn that it will not be complete. The first ending is enough.
void ElasticJob::tell_ended(const Ending& ending) {
  const View& view = proposer_.view();
  const Uid& uid = processes_[static_cast<size_t>(ending.rank)].uid;
  const Rank rank = view.rank_of(uid);
  Ending named = ending;
  if (rank >= 0) named.rank = rank;
  if (ending.is_failure() && !ending.was_stopped)
    effects_.say(fmt::format("{} {}", rank >= 0 ? describe(named) : describe(ending),
                             rank >= 0 ? fmt::format("(process {} of view {})", uid, view.number)
                                       : fmt::format("(process {}, which was no member)", uid)));
  if (rank < 0 || std::exchange(is_ended_told_, true)) return;
  effects_.put(
      membership::exchange_prefix(view.number) + std::string(store::kEndedKey),
      store::format_ended({.size = view.size(), .rank = rank, .how = describe(named), .pid = ending.pid}));
}

void ElasticJob::tick(Nanos now) {
  if (views_ == nullptr || is_over_) return;
  hear(now);
  for (const Uid& uid : proposer_.silent(now)) {
    effects_.say(
        fmt::format("process {} has not said within {} s that it is ready for the next view; it is ended",
                    uid, options_.timeout_s));
    effects_.end(number_of(uid).value());
  }
  discover(now);
  offer_reached();
  evict_stopped(now);
  form_view(now);
  change_members();
  tell_awaited();
  judge(now);
  if (!is_over_) fill_slots(now);
}

// A script that fails or says too little changes nothing. Each trouble is told once.
void ElasticJob::discover(Nanos now) {
  if (!discovery_) return;
  const auto found = discovery_->tick(now);
  if (!found) return;
  std::string trouble = found->is_ok() ? "" : found->status().why;
  int slots = 0;
  if (found->is_ok())
    for (const HostSlots& host : found->value()) slots += host.slots;
  if (trouble.empty() && slots < options_.least)
    trouble = fmt::format("the discovery script {} names {} slots, fewer than --min-np {}",
                          options_.discovery_script, slots, options_.least);
  if (trouble != discovery_trouble_ && !trouble.empty())
    effects_.say(trouble + "; the hosts stay as they were");
  discovery_trouble_ = std::move(trouble);
  if (discovery_trouble_.empty()) wanted_ = found->value();
}

void ElasticJob::offer_reached() {
  std::vector<HostSlots> reached;
  for (const HostSlots& host : wanted_)
    if (effects_.reach(host.name)) reached.push_back(host);
  if (reached == offered_) return;
  offered_ = std::move(reached);
  slots_.offer(offered_);
  let_go();
}

// Processes whose slots are gone leave at the next commit; those that never were members end now. If no
// member would stay, they wait until others have joined, or the state would be lost.
void ElasticJob::let_go() {
  const View& view = proposer_.view();
  const auto has_place = [this](const Member& one) {
    return slots_.is_offered(processes_[static_cast<size_t>(number_of(one.uid).value())].place);
  };
  const bool does_one_stay = std::ranges::any_of(view.members, has_place);
  for (size_t number = 0; number < processes_.size(); ++number) {
    Process& process = processes_[number];
    if (process.has_ended || slots_.is_offered(process.place)) continue;
    const bool is_member = view.rank_of(process.uid) >= 0;
    const bool ends_by_itself = is_member || process.after > 0;  // it hears that it was excluded
    if (!ends_by_itself && !std::exchange(process.is_told_to_end, true))
      effects_.end(static_cast<int>(number));
    if (is_member && does_one_stay) proposer_.on_leaving(process.uid);
  }
}

void ElasticJob::hear(Nanos now) {
  for (membership::Ready& ready : inbox_.take()) {
    const std::optional<int> number = number_of(ready.uid);
    if (!number) continue;  // it belongs to no process of this job
    Process& process = processes_[static_cast<size_t>(*number)];
    process.after = ready.after;
    proposer_.on_ready(ready, now);
    if (ready.after == proposer_.view().number) tell(common_commit_.on_left());
  }
  refuse();
}

void ElasticJob::refuse() {
  for (const auto& [uid, why] : proposer_.take_refused()) {
    effects_.say(fmt::format("process {}: {}", uid, why));
    effects_.put(membership::answer_key(uid, 0), std::string(membership::kAnswerNo) + why);
  }
}

void ElasticJob::form_view(Nanos now) {
  const std::optional<View> next = proposer_.next();
  if (!next) return;
  const int64_t before = proposer_.view().number;
  const Result<View> decided = views_->propose(*next);
  if (!decided.is_ok()) return effects_.say("cannot decide the next view: " + decided.status().why);
  const View left = proposer_.view();
  proposer_.on_view(decided.value(), now);
  tell(common_commit_.end());
  is_ended_told_ = false;
  install(decided.value());
  let_go();
  for (const Member& one : left.members)
    if (decided.value().rank_of(one.uid) < 0)
      effects_.put(membership::answer_key(one.uid, before),
                   fmt::format("{}this process was excluded from view {} of the job; it has to end",
                               membership::kAnswerNo, decided.value().number));
}

// Somebody can join, or is to leave: the members come to a common commit. A view that forms after a loss
// takes them along anyway.
void ElasticJob::change_members() {
  if (proposer_.is_forming() || common_commit_.is_under_way() || !proposer_.wants_change()) return;
  std::vector<CommonCommit::Member> members;
  CommonCommit::Reasons reasons{.are_hosts_added = proposer_.has_joiners()};
  for (const Member& one : proposer_.view().members) {
    members.push_back({.number = number_of(one.uid).value(), .does_leave = proposer_.is_leaving(one.uid)});
    reasons.are_hosts_removed = reasons.are_hosts_removed || members.back().does_leave;
  }
  tell(common_commit_.begin(members, reasons));
}

void ElasticJob::on_board(const BoardReport& report) {
  tell(common_commit_.on_report(report.rank, report.round, report.commit, report.answer));
}

void ElasticJob::on_held(const std::string& host, const status::JobNews& news, Nanos now) {
  for (size_t number = 0; number < processes_.size(); ++number) {
    Process& process = processes_[number];
    if (process.place.host != host) continue;
    const bool is_stopped = std::ranges::any_of(news.held, [number](const status::HeldProcess& one) {
      return std::cmp_equal(one.rank, number) && one.state == ProcessState::kStopped;
    });
    if (!is_stopped) process.stopped = 0;
    if (is_stopped && process.stopped == 0) process.stopped = now - kSeenFor;
  }
}

// One that is continued later must not write into memory that others map, so it ends before there is a view
// without it.
void ElasticJob::evict_stopped(Nanos now) {
  for (size_t number = 0; number < processes_.size(); ++number) {
    Process& process = processes_[number];
    if (process.stopped == 0 || process.has_ended || now - process.stopped < kStoppedTime) continue;
    process.stopped = 0;
    effects_.say(fmt::format("process {} has been stopped for {} s; it is ended", process.uid,
                             kStoppedTime / kSecond));
    effects_.end(static_cast<int>(number));
  }
}

void ElasticJob::tell(const CommonCommit::Orders& orders) {
  for (const auto& [number, change] : orders) effects_.change(number, change);
}

void ElasticJob::tell_awaited() {
  std::string names;
  if (proposer_.is_forming()) names = fmt::format("{}", fmt::join(proposer_.awaited(), ", "));
  if (names != awaited_) effects_.put(std::string(membership::kAwaitedKey), names);
  awaited_ = std::move(names);
}

void ElasticJob::install(const View& view) {
  effects_.say(describe_view(view));
  const std::string answer = fmt::format("{}{}", membership::kAnswerView, view.number);
  for (const Member& one : view.members) {
    const Process& process = processes_[static_cast<size_t>(number_of(one.uid).value())];
    effects_.put(membership::answer_key(one.uid, process.after), answer);
  }
}

std::string ElasticJob::describe_view(const View& view) const {
  std::string text = fmt::format("view {} has {} ranks", view.number, view.size());
  if (!view.lost.empty()) text += fmt::format("; gone: {}", fmt::join(view.lost, ", "));
  std::vector<Uid> joined;
  for (const Rank rank : view.joined()) joined.push_back(view.members[static_cast<size_t>(rank)].uid);
  if (!joined.empty()) text += fmt::format("; new: {}", fmt::join(joined, ", "));
  if (view.commit() >= 0) text += fmt::format("; it goes on from commit {}", view.commit());
  return text;
}

// A job in which a member has ended well is about to end, and needs no more processes.
void ElasticJob::fill_slots(Nanos now) {
  if (has_member_ended_well()) return;
  const int wanted = options_.most == 0 ? slots_.offered() : options_.most + options_.spares;
  while (slots_.taken() < wanted) {
    const std::optional<Slots::Place> place = slots_.take(now);
    if (!place) return;
    const auto number = static_cast<int>(processes_.size());
    effects_.say(fmt::format("process {} is started as number {}", add(*place, now).uid, number));
    effects_.start(place->host, variables_of(number));
  }
}

void ElasticJob::judge(Nanos now) {
  const View& view = proposer_.view();
  const bool have_all_ended = std::ranges::all_of(view.members, [this](const Member& one) {
    return processes_[static_cast<size_t>(number_of(one.uid).value())].has_ended;
  });
  if (have_all_ended) {
    is_over_ = true;
    return;
  }
  verdict_ = proposer_.verdict(now);
  is_over_ = !verdict_.empty();
}

Nanos ElasticJob::next(Nanos now) const {
  Nanos next = 0;
  for (const Nanos at : {proposer_.deadline(), slots_.next(now), discovery_ ? discovery_->next() : 0})
    if (at != 0 && (next == 0 || at < next)) next = at;
  return next;
}

std::vector<Ending> ElasticJob::deciding(const std::vector<Ending>& endings) const {
  std::vector<Ending> last;
  for (const Ending& one : endings) {
    const Rank rank = proposer_.view().rank_of(processes_[static_cast<size_t>(one.rank)].uid);
    if (rank >= 0) last.push_back(one);
  }
  return last;
}

}  // namespace rueda::launch
