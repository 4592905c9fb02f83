#include "launch/elastic_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "launch/elastic_words.h"
#include "rueda/base/counted.h"
#include "rueda/base/stopped.h"
#include "rueda/membership/keys.h"
#include "rueda/store/ended.h"

namespace rueda::launch {
namespace {

using membership::Member;
using membership::Uid;
using membership::View;

// An agent looks at its processes once a second, and says that one is stopped when it has seen it twice.
constexpr Nanos kSeenFor = kSecond;
// Steps are shorter than this, so a script whose members do not commit meanwhile never does.
constexpr Nanos kCommitTime = 60 * kSecond;
constexpr int kLeft = 75;  // the exit code of a process that was told to leave

membership::Rules rules_of(const ElasticOptions& options) {
  return {.least = options.least,
          .most = options.most,
          .most_resets = options.reset_limit,
          .timeout = nanos(options.timeout_s, kSecond)};
}

}  // namespace

ElasticJob::ElasticJob(const ElasticOptions& options, int size, Effects effects)
    : options_(options),
      effects_(std::move(effects)),
      proposer_(rules_of(options)),
      hosts_(options_, effects_.say, effects_.reach),
      processes_(size) {}

void ElasticJob::watch(PollSet& set) {
  set.watch(inbox_.fd(), POLLIN, [] {});  // tick() takes what has come
  hosts_.watch(set);
}

void ElasticJob::begin(const std::vector<HostSlots>& hosts, std::span<const Placement> placements,
                       Nanos now) {
  hosts_.begin(hosts);
  slots_.offer(hosts);
  for (size_t i = 0; i < placements.size(); ++i) {
    // Both fill one host after the other.
    const Slots::Place place = slots_.take(now).value();
    processes_.add(place, now).after = 1;
  }
  const int wanted = options_.most == 0 ? 0 : options_.most + options_.spares;
  if (!hosts_.are_discovered() && slots_.offered() < wanted)
    effects_.say(fmt::format("--max-np and --spares ask for {}, and the hosts have {}; give more with -H",
                             counted(wanted, "process"), counted(slots_.offered(), "slot")));
}

Status ElasticJob::open(std::unique_ptr<membership::Register> views, Nanos now) {
  views_ = std::move(views);
  View first{.number = 1, .members = {}, .lost = {}};
  for (const ElasticProcess& one : processes_)
    first.members.push_back({.uid = one.uid, .host = one.place.host, .is_new = true});
  const Result<View> decided = views_->propose(first);
  if (!decided.is_ok()) return decided.status();
  proposer_.on_view(decided.value(), now);
  return Status::ok();
}

Variables ElasticJob::variables_of(int number) const {
  const ElasticProcess& process = processes_.at(number);
  const std::string timeout = fmt::format("{}", options_.timeout_s);
  const bool is_joiner = process.after == 0;
  return {{"RUEDA_JOINER", is_joiner ? "1" : "0"},
          {membership::kUidVariable, process.uid},
          {membership::kFirstViewVariable, is_joiner ? "0" : "1"},
          {membership::kTimeoutVariable, timeout},
          {"HOROVOD_ELASTIC_TIMEOUT", timeout},
          {"HOROVOD_ELASTIC", "1"}};
}

// A member has ended well, and no other wants to go on without it.
bool ElasticJob::is_about_to_end() const {
  return !proposer_.has_ready_member() &&
         std::ranges::any_of(proposer_.view().members, [this](const Member& one) {
           const ElasticProcess& process = processes_.of(one);
           return process.has_ended && !process.has_failed;
         });
}

void ElasticJob::end(int number, const std::string& why) {
  ElasticProcess& process = processes_.at(number);
  process.ended_because = why;
  effects_.end(number);
}

void ElasticJob::on_ended(const Ending& ending, Nanos now) {
  ElasticProcess& process = processes_.at(ending.rank);
  if (std::exchange(process.has_ended, true)) return;
  process.has_failed = ending.is_failure() && !(process.is_leaving && ending.exit_code == kLeft);
  slots_.end(process.place, ending.is_failure(), now - process.started, now);
  if (proposer_.view().rank_of(process.uid) >= 0) tell(common_commit_.end());
  tell_ended(ending);
  proposer_.on_gone(process.uid, now);
}

// Members that wait in an init of this view learn that it will not be complete. The first ending is enough.
void ElasticJob::tell_ended(const Ending& ending) {
  const View& view = proposer_.view();
  const Uid& uid = processes_.at(ending.rank).uid;
  const Rank rank = view.rank_of(uid);
  Ending named = processes_.corrected(ending);
  if (rank >= 0) named.rank = rank;
  if (processes_.at(ending.rank).has_failed && !ending.was_stopped)
    effects_.say(describe_loss(named, uid, view));
  if (rank >= 0 && !ending.is_failure()) ended_well_.push_back(named);
  tell_early_ends();
  if (rank < 0 || std::exchange(is_ended_told_, true)) return;
  effects_.put(
      membership::exchange_prefix(view.number) + std::string(store::kEndedKey),
      store::format_ended({.size = view.size(), .rank = rank, .how = describe(named), .pid = ending.pid}));
}

// Members that have ended well, once another member wants to go on.
void ElasticJob::tell_early_ends() {
  if (!proposer_.has_ready_member()) return;
  const View& view = proposer_.view();
  for (const Ending& one : std::exchange(ended_well_, {}))
    effects_.say(describe_early_end(one, view.members[static_cast<size_t>(one.rank)].uid, view));
}

void ElasticJob::tick(Nanos now) {
  if (views_ == nullptr || is_over_) return;
  hear(now);
  refuse(now);
  for (const Uid& uid : proposer_.silent(now)) {
    const std::string why =
        fmt::format("it has not said within {} s that it is ready for the next view", options_.timeout_s);
    effects_.say(fmt::format("process {} is ended: {}", uid, why));
    end(processes_.number_of(uid).value(), why);
  }
  if (hosts_.tick(now)) {
    slots_.offer(hosts_.offered());
    let_go();
  }
  evict_stopped(now);
  form_view(now);
  change_members();
  tell_awaited();
  tell_without_commit(now);
  judge(now);
  if (!is_over_) fill_slots(now);
}

bool ElasticJob::has_left(const std::string& host) const {
  return hosts_.is_leaving(host) && std::ranges::none_of(processes_, [&](const ElasticProcess& one) {
           return one.place.host == host && !one.has_ended;
         });
}

void ElasticJob::on_leaving(int number) {
  ElasticProcess& process = processes_.at(number);
  if (process.has_ended || std::exchange(process.is_leaving, true)) return;
  effects_.say(
      fmt::format("process {} was told by SIGTERM to leave; it does so at the next commit", process.uid));
  let_go();
}

// Processes whose slots are gone leave at the next commit; those that never were members end now. If no
// member would stay, they wait until others have joined, or the state would be lost.
void ElasticJob::let_go() {
  const View& view = proposer_.view();
  const auto has_place = [this](const ElasticProcess& one) {
    return slots_.is_offered(one.place) && !one.is_leaving;
  };
  const bool does_one_stay = std::ranges::any_of(view.members, [&](const Member& one) {
    const ElasticProcess& process = processes_.of(one);
    return !process.has_ended && has_place(process);
  });
  proposer_.allow_more(does_one_stay ? 0 : view.size());
  for (int number = 0; number < processes_.size(); ++number) {
    ElasticProcess& process = processes_.at(number);
    if (process.has_ended || has_place(process)) continue;
    const bool is_member = view.rank_of(process.uid) >= 0;
    const bool ends_by_itself = is_member || process.after > 0;  // it hears that it was excluded
    if (!ends_by_itself && !std::exchange(process.is_told_to_end, true)) end(number, "its slot is gone");
    if (is_member && does_one_stay) {
      process.is_leaving = true;
      proposer_.on_leaving(process.uid);
    }
  }
}

void ElasticJob::hear(Nanos now) {
  for (membership::Ready& ready : inbox_.take()) {
    const std::optional<int> number = processes_.number_of(ready.uid);
    if (!number) continue;  // it belongs to no process of this job
    ElasticProcess& process = processes_.at(*number);
    process.after = ready.after;
    // It got the state from the others, or others from it.
    if (ready.after > 0 && ready.commit != membership::kNoCommit) slots_.join(process.place.host);
    proposer_.on_ready(ready, now);
    if (ready.after == proposer_.view().number) tell(common_commit_.on_left());
  }
  tell_early_ends();
}

void ElasticJob::refuse(Nanos now) {
  for (const auto& [uid, why] : proposer_.take_refused()) {
    const bool is_member = proposer_.view().rank_of(uid) >= 0;
    effects_.say(fmt::format("process {}: {}", uid, why));
    effects_.put(membership::answer_key(uid, is_member ? proposer_.view().number : 0),
                 std::string(membership::kAnswerNo) + why);
    told_.insert(uid);
    if (proposer_.cut_off().contains(uid))
      slots_.rest(processes_.at(*processes_.number_of(uid)).place.host, now);
  }
}

void ElasticJob::on_silent(const std::string& host, bool is_silent) {
  for (const Member& one : proposer_.view().members) {
    if (one.host != host) continue;
    if (is_silent)
      proposer_.on_silent(one.uid);
    else
      proposer_.on_heard(one.uid);
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
  ended_well_.clear();
  install(decided.value());
  let_go();
  for (const Member& one : left.members)
    if (decided.value().rank_of(one.uid) < 0 && !told_.contains(one.uid))
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
    members.push_back(
        {.number = processes_.number_of(one.uid).value(), .does_leave = proposer_.is_leaving(one.uid)});
    reasons.are_hosts_removed = reasons.are_hosts_removed || members.back().does_leave;
  }
  tell(common_commit_.begin(members, reasons));
}

void ElasticJob::on_board(const BoardReport& report) {
  tell(common_commit_.on_report(report.rank, report.round, report.commit, report.answer));
}

void ElasticJob::on_held(const std::string& host, const status::JobNews& news, Nanos now) {
  for (int number = 0; number < processes_.size(); ++number) {
    ElasticProcess& process = processes_.at(number);
    if (process.place.host != host) continue;
    const bool is_stopped = std::ranges::any_of(news.held, [number](const status::HeldProcess& one) {
      return one.rank == number && one.state == ProcessState::kStopped;
    });
    if (!is_stopped) process.stopped = 0;
    if (is_stopped && process.stopped == 0) process.stopped = now - kSeenFor;
  }
}

// One that is continued later must not write into memory that others map, so it ends before there is a view
// without it.
void ElasticJob::evict_stopped(Nanos now) {
  for (int number = 0; number < processes_.size(); ++number) {
    ElasticProcess& process = processes_.at(number);
    if (process.stopped == 0 || process.has_ended || now - process.stopped < kElasticStoppedTime) continue;
    process.stopped = 0;
    effects_.say(fmt::format("process {} has been stopped for {} s; it is ended", process.uid,
                             kElasticStoppedTime / kSecond));
    end(number, fmt::format("it had been stopped for {} s", kElasticStoppedTime / kSecond));
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

// Processes wait to join or to leave, and no member comes to a commit.
void ElasticJob::tell_without_commit(Nanos now) {
  if (!common_commit_.is_under_way())
    asked_since_ = 0;
  else if (asked_since_ == 0)
    asked_since_ = now;
  if (asked_since_ == 0 || now - asked_since_ < kCommitTime || std::exchange(is_told_without_commit_, true))
    return;
  effects_.say(
      fmt::format("the members have not made a common commit for {} s, and only there others can join or "
                  "leave; let the script call state.commit() every few steps",
                  kCommitTime / kSecond));
}

void ElasticJob::install(const View& view) {
  effects_.say(describe_view(view));
  const std::string answer = fmt::format("{}{}", membership::kAnswerView, view.number);
  for (const Member& one : view.members) {
    const ElasticProcess& process = processes_.of(one);
    effects_.put(membership::answer_key(one.uid, process.after), answer);
  }
}

// Those that are about to leave are replaced before they have left.
void ElasticJob::fill_slots(Nanos now) {
  if (is_about_to_end()) return;
  const auto leaving = static_cast<int>(std::ranges::count_if(
      processes_, [](const ElasticProcess& one) { return one.is_leaving && !one.has_ended; }));
  const int wanted = options_.most == 0 ? slots_.offered() : options_.most + options_.spares + leaving;
  while (slots_.taken() < wanted) {
    const std::optional<Slots::Place> place = slots_.take(now);
    if (!place) return;
    const int number = processes_.size();
    effects_.say(fmt::format("process {} is started as number {}", processes_.add(*place, now).uid, number));
    effects_.start(place->host, variables_of(number));
  }
}

void ElasticJob::judge(Nanos now) {
  const View& view = proposer_.view();
  const bool have_all_ended =
      std::ranges::all_of(view.members, [this](const Member& one) { return processes_.of(one).has_ended; });
  if (have_all_ended) {
    is_over_ = true;
    return;
  }
  verdict_ = proposer_.verdict(now);
  is_over_ = !verdict_.empty();
}

Nanos ElasticJob::next(Nanos now) const {
  Nanos next = 0;
  const Nanos commit_due = asked_since_ == 0 || is_told_without_commit_ ? 0 : asked_since_ + kCommitTime;
  for (const Nanos at : {proposer_.deadline(), slots_.next(now), hosts_.next(), commit_due})
    if (at != 0 && (next == 0 || at < next)) next = at;
  return next;
}

std::vector<Ending> ElasticJob::deciding(const std::vector<Ending>& endings) const {
  std::vector<Ending> last;
  for (const Ending& one : endings) {
    const ElasticProcess& process = processes_.at(one.rank);
    const bool has_left = process.is_leaving && one.exit_code == kLeft;
    if (proposer_.view().rank_of(process.uid) >= 0 && !has_left) last.push_back(processes_.corrected(one));
  }
  return last;
}

}  // namespace rueda::launch
