#include "rueda/members/member_views.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "rueda/base/log.h"
#include "rueda/base/release.h"
#include "rueda/base/sleep.h"
#include "rueda/members/majority_register.h"
#include "rueda/membership/keys.h"
#include "rueda/store/other_build.h"
#include "rueda/store/store_url.h"
#include "rueda/store/tcp_store.h"

namespace rueda::members {
namespace {

using membership::Commit;
using membership::Member;
using membership::Ready;
using membership::Uid;
using membership::View;

constexpr Nanos kMemberSlice = 250 * kMillisecond;  // between looks whether the caller wants to give up
constexpr Nanos kRest = 20 * kMillisecond;          // between questions to members that are not ready
constexpr Nanos kDial = kSecond;                    // one attempt to reach a store
constexpr Commit kCommitsAhead = 2;                 // see committed()
constexpr int64_t kKeptViews = 2;

std::string text_of(const Bytes& raw) { return {reinterpret_cast<const char*>(raw.data()), raw.size()}; }

Result<View> view_of(std::string_view text) {
  return membership::decode_view(std::as_bytes(std::span(text)));
}

Deadline sooner(Deadline deadline, Nanos at_most) {
  return Deadline::at(std::min(deadline.when(), monotonic_now() + at_most));
}

Status excluded(int64_t number) {
  return {Code::kUnavailable,
          "this process was excluded from view " + std::to_string(number) + " of the job; it has to end."};
}

Status in_time(const std::string& what) {
  return {Code::kTimeout, "the next view of this elastic job was not decided in time; " + what + "."};
}

// "host:port,host:port"
std::vector<std::pair<std::string, int>> addresses_of(const std::string& list) {
  std::vector<std::pair<std::string, int>> addresses;
  for (const auto part : std::views::split(list, ',')) {
    const auto url = store::parse_store_url("tcp://" + std::string(part.begin(), part.end()));
    if (url.is_ok()) addresses.emplace_back(url.value().host, url.value().port);
  }
  return addresses;
}

}  // namespace

Status MemberViews::serve(const store::World& world, const std::string& interface, bool is_first,
                          const ViewWait& wait) {
  if (own_ != nullptr) return Status::ok();
  Result<std::unique_ptr<MemberStore>> opened = MemberStore::open(world, interface, is_first, wait.deadline);
  if (!opened.is_ok()) return opened.status();
  own_ = std::move(opened).value();
  peers_ = std::make_unique<MemberPeers>(*own_, host_);
  return Status::ok();
}

Result<std::string> MemberViews::await(store::Store& store, const std::string& key, const std::string& whom,
                                       const ViewWait& wait) const {
  while (true) {
    Result<std::string> value = store.get(key, sooner(wait.deadline, kMemberSlice));
    if (value.is_ok() || value.status().code != Code::kTimeout) return value;
    if (store::is_set(wait.is_interrupted)) return store::interrupted_status();
    if (wait.deadline.is_past())
      return Status(Code::kTimeout, whom + " did not call init in time (met at " + store.description() +
                                        "); start every rank, or raise RUEDA_START_TIMEOUT.");
  }
}

Result<View> MemberViews::begin(const store::World& world, const std::string& interface,
                                const ViewWait& wait) {
  if (Status s = serve(world, interface, world.rank == 0, wait); !s.is_ok()) return s;
  const Result<store::StoreUrl> url = store::parse_store_url(world.url);
  if (!url.is_ok()) return url.status();
  const store::TcpSite site = world.rank == 0 ? own_->site_of(own_->contact().address, own_->contact().port)
                                              : own_->site_of(url.value().host, url.value().port);
  Result<std::unique_ptr<store::Store>> met = Status(Code::kUnavailable, "not met yet");
  while (!met.is_ok()) {
    met = store::open_tcp_store(site, sooner(wait.deadline, kDial));
    if (met.is_ok()) break;
    if (met.status().code == Code::kPermissionDenied || wait.deadline.is_past()) return met.status();
    if (store::is_set(wait.is_interrupted)) return store::interrupted_status();
  }
  store::Store& store = *met.value();
  const Ready me{.uid = uid_, .host = host_, .digest = {}, .contact = to_text(own_->contact())};
  Status told =
      store.set(membership::first_key(world.rank), text_of(encode(me)), sooner(wait.deadline, kDial));
  if (!told.is_ok()) return told;
  if (world.rank == 0) {
    View first{.number = 1, .members = {}, .lost = {}};
    for (Rank rank = 0; rank < world.size; ++rank) {
      const auto said = await(store, membership::first_key(rank), "rank " + std::to_string(rank), wait);
      if (!said.is_ok()) return said.status();
      const Result<Ready> ready = membership::decode_ready(std::as_bytes(std::span(said.value())));
      if (!ready.is_ok()) return ready.status();
      first.members.push_back({.uid = ready.value().uid,
                               .host = ready.value().host,
                               .is_new = true,
                               .contact = ready.value().contact});
    }
    told = store.set(membership::view_key(1), text_of(encode(first)), sooner(wait.deadline, kDial));
    if (!told.is_ok()) return told;
  }
  const Result<std::string> text = await(store, membership::view_key(1), "another rank", wait);
  if (!text.is_ok()) return text.status();
  Result<View> view = view_of(text.value());
  if (view.is_ok() && view.value().rank_of(uid_) != world.rank)
    return Status(Code::kInvalidArgument,
                  "this job has begun already, with another process as rank " + std::to_string(world.rank) +
                      "; to join it, start this process with RUEDA_JOINER=1 and without RUEDA_RANK and "
                      "RUEDA_SIZE.");
  return view;
}

Result<View> MemberViews::next(const View& last, const Ready& mine, Nanos timeout, const ViewWait& wait) {
  own_->put(membership::left_key(last.number), text_of(encode(mine)));
  digest_ = mine.digest;
  std::set<Uid> silent;
  const std::string key = membership::view_key(last.number + 1);
  while (true) {
    const auto first = std::ranges::find_if(
        last.members, [&](const Member& one) { return one.uid == uid_ || !silent.contains(one.uid); });
    if (first->uid == uid_) return lead(last, mine, timeout, std::move(silent), wait);
    const Said said = peers_->value(*first, key);
    if (said.how == Said::How::kYes) return view_told(*first, said);
    if (said.how != Said::How::kNotYet) silent.insert(first->uid);
    if (store::is_set(wait.is_interrupted)) return store::interrupted_status();
    if (wait.deadline.is_past()) return in_time("it waits for " + first->uid);
  }
}

// The view that a member holds under its number, or a later one.
Result<View> MemberViews::view_told(const Member& member, const Said& said) {
  if (!said.text.empty()) return view_of(said.text);
  const Said newest = peers_->value(member, membership::kNewestKey);
  if (newest.how == Said::How::kYes) return view_of(newest.text);
  return Status(Code::kUnavailable, "this process has missed a view of the job, and " + member.uid +
                                        ", which told it so, has ended; it has to end.");
}

// What a member has said, or that it says nothing.
void MemberViews::note(const Member& member, const Said& said, membership::Proposer& proposer) {
  if (said.how == Said::How::kNotYet) return;
  if (said.how == Said::How::kYes) {
    if (said.text.empty()) ahead_ = member;  // it belongs to the next view already
    const Result<Ready> ready = membership::decode_ready(std::as_bytes(std::span(said.text)));
    if (ready.is_ok() && ready.value().uid == member.uid) proposer.on_ready(ready.value(), monotonic_now());
    return;
  }
  (peers_->has_gone(member, said) ? ended_ : silent_).insert(member.uid);
  proposer.on_gone(member.uid, monotonic_now());
}

void MemberViews::hear_members(membership::Proposer& proposer) {
  const View& last = proposer.view();
  std::vector<Member> asked;
  for (const Uid& uid : proposer.awaited())
    asked.push_back(last.members[static_cast<size_t>(last.rank_of(uid))]);
  const std::string key = membership::left_key(last.number);
  const std::vector<Said> said = MemberPeers::ask_all(
      asked, [&](const Member& one) { return silent_.contains(one.uid) ? Said{} : peers_->value(one, key); });
  for (size_t i = 0; i < asked.size(); ++i) note(asked[i], said[i], proposer);
}

std::vector<Ready> MemberViews::living_joiners(const View& view) {
  std::vector<Ready> living;
  std::vector<Member> asked;
  for (const Ready& one : own_->joiners())
    if (view.rank_of(one.uid) < 0)
      asked.push_back({.uid = one.uid, .host = one.host, .contact = one.contact});
  const std::vector<Said> said = MemberPeers::ask_all(
      asked, [&](const Member& one) { return peers_->value(one, membership::left_key(0)); });
  for (const Ready& one : own_->joiners()) {
    const auto at = std::ranges::find(asked, one.uid, &Member::uid);
    if (at == asked.end()) continue;
    if (said[static_cast<size_t>(at - asked.begin())].how == Said::How::kYes)
      living.push_back(one);
    else
      own_->forget(one.uid);
  }
  return living;
}

void MemberViews::hear_joiners(membership::Proposer& proposer) {
  for (const Ready& one : living_joiners(proposer.view())) proposer.on_ready(one, monotonic_now());
  for (const auto& [uid, why] : proposer.take_refused()) {
    RUEDA_LOG(kWarning, "process " + uid + ": " + why);
    if (proposer.view().rank_of(uid) < 0) refuse(uid, why);  // a member sees that the next view is without it
  }
}

void MemberViews::refuse(const Uid& uid, const std::string& why) {
  own_->put(membership::answer_key(uid, 0), std::string(membership::kAnswerNo) + why);
  own_->forget(uid);
}

Result<View> MemberViews::lead(const View& last, const Ready& mine, Nanos timeout, std::set<Uid> silent,
                               const ViewWait& wait) {
  membership::Proposer proposer({.timeout = timeout});
  proposer.on_view(last, monotonic_now());
  proposer.on_ready(mine, monotonic_now());
  ended_.clear();
  silent_ = std::move(silent);
  ahead_.reset();
  while (true) {
    hear_members(proposer);
    if (ahead_) return view_told(*ahead_, Said{});
    hear_joiners(proposer);
    if (const std::optional<View> next = proposer.next()) {
      MajorityRegister views(*peers_, uid_, last, ended_, silent_, round_);
      Result<View> decided = views.propose(*next);
      if (decided.is_ok())
        own_->put(membership::view_key(decided.value().number), text_of(encode(decided.value())));
      return decided;
    }
    if (const std::string verdict = proposer.verdict(monotonic_now()); !verdict.empty())
      return Status(Code::kUnavailable, verdict);
    for (const Uid& uid : proposer.silent(monotonic_now())) {
      RUEDA_LOG(kWarning, "process " + uid +
                              " is left out: it has not said in time that it is ready for the "
                              "next view");
      note(last.members[static_cast<size_t>(last.rank_of(uid))], Said{}, proposer);
    }
    if (store::is_set(wait.is_interrupted)) return store::interrupted_status();
    if (wait.deadline.is_past() && !proposer.awaited().empty())
      return in_time("it waits for " + proposer.awaited().front());
    sleep_for(kRest);
  }
}

// The newest view that anybody knows who answers at one of the places where members may listen. by: the
// processes there that refuse this one.
Result<View> MemberViews::find_view(const store::World& world, const View& known, Refused& by) {
  std::vector<std::pair<std::string, int>> places = addresses_of(others_);
  if (const auto url = store::parse_store_url(world.url); url.is_ok())
    for (int i = 0; i < kMemberPorts && url.value().port + i <= 65'535; ++i)
      places.emplace_back(url.value().host, url.value().port + i);
  for (const Member& one : known.members)
    if (const Result<Contact> contact = parse_contact(one.contact); contact.is_ok())
      places.emplace_back(contact.value().address, contact.value().port);
  Result<View> newest = Status(Code::kUnavailable, "no member of the job listens at " + world.url +
                                                       ", at the next ports there, or where "
                                                       "RUEDA_ELASTIC_MEMBERS names others");
  for (const auto& [host, port] : places) {
    HandshakeOutcome refused{};
    auto store = store::dial_tcp_store_once(own_->site_of(host, port), Deadline::after(kDial), refused);
    if (!store.is_ok()) {
      const bool has_other_secret = refused == HandshakeOutcome::kWrongSecret;
      by.is_other_build = by.is_other_build || store::is_other_build(refused);
      by.has_other_secret = by.has_other_secret || has_other_secret;
      if (has_other_secret || store::is_other_build(refused))
        newest = newest.is_ok() ? std::move(newest) : Result<View>(store.status());
      continue;
    }
    const Result<std::string> text = store.value()->try_get(membership::kNewestKey, Deadline::after(kDial));
    Result<View> view = text.is_ok() ? view_of(text.value()) : Result<View>(text.status());
    if (view.is_ok() && (!newest.is_ok() || view.value().number > newest.value().number))
      newest = std::move(view);
  }
  return newest;
}

// Asks the first member that answers. Empty: the next look may find another one.
Result<std::optional<View>> MemberViews::ask_to_join(const View& known, const Ready& mine,
                                                     const ViewWait& wait) {
  const std::string word = text_of(encode(mine));
  const std::string next = membership::view_key(known.number + 1), answer = membership::answer_key(uid_, 0);
  // A refusal is looked for before this process asks again: to ask once more would interrupt the others once
  // more.
  const auto leader = std::ranges::find_if(known.members, [&](const Member& one) {
    const Said::How how = peers_->value(one, answer).how;
    return how == Said::How::kYes || how == Said::How::kNotYet;
  });
  if (leader == known.members.end()) return std::optional<View>();
  while (true) {
    const Said refusal = peers_->value(*leader, answer);
    if (refusal.how == Said::How::kYes)
      return Status(Code::kUnavailable,
                    refusal.text.substr(std::min(refusal.text.size(), membership::kAnswerNo.size())));
    (void)peers_->set(*leader, membership::ready_key(uid_), word);  // it may have forgotten one that was slow
    Said said = peers_->value(*leader, next);
    if (said.how == Said::How::kNotYet) said = peers_->value(*leader, membership::kNewestKey);
    if (said.how != Said::How::kYes) return std::optional<View>();
    const Result<View> view = view_of(said.text);
    if (!view.is_ok()) return view.status();
    if (view.value().number > known.number) return std::optional<View>(view.value());
    if (store::is_set(wait.is_interrupted)) return store::interrupted_status();
    if (wait.deadline.is_past()) return in_time("the members have not made a commit at which others join");
  }
}

Result<View> MemberViews::join(const store::World& world, const std::string& interface, Ready mine,
                               const ViewWait& wait) {
  if (Status s = serve(world, interface, false, wait); !s.is_ok()) return s;
  mine.contact = to_text(own_->contact());
  digest_ = mine.digest;
  own_->put(membership::left_key(0), text_of(encode(mine)));
  View known;
  bool has_told_secret = false;
  Nanos other_builds_since = 0;  // nobody answers but processes of another build; 0: that is not so
  while (true) {
    Refused by;
    Result<View> found = find_view(world, known, by);
    // It may be another job's, while this one has not begun yet.
    if (!found.is_ok() && by.has_other_secret && !std::exchange(has_told_secret, true))
      RUEDA_LOG(kWarning, found.status().why + " It looks for members of this job until the time is up.");
    if (found.is_ok() || !by.is_other_build)
      other_builds_since = 0;
    else if (other_builds_since == 0)
      other_builds_since = monotonic_now();
    else if (monotonic_now() - other_builds_since > store::kLeavingBuild)
      return found.status();
    if (found.is_ok() && found.value().number >= known.number) {
      known = found.value();
      if (known.rank_of(uid_) >= 0) return known;
      Result<std::optional<View>> view = ask_to_join(known, mine, wait);
      if (!view.is_ok()) return view.status();
      if (view.value() && view.value()->rank_of(uid_) >= 0) return *view.value();
      if (view.value() && std::ranges::count(view.value()->lost, uid_) > 0)
        return excluded(view.value()->number);
    }
    if (store::is_set(wait.is_interrupted)) return store::interrupted_status();
    if (wait.deadline.is_past()) return found.is_ok() ? in_time("no member admits it") : found.status();
    sleep_for(kMemberSlice);
  }
}

Status MemberViews::install(const View& view, const View* last) {
  for (const Member& one : view.members)
    if (const Result<Contact> contact = parse_contact(one.contact); !contact.is_ok()) return contact.status();
  for (const Member& one : last == nullptr ? std::vector<Member>() : last->members) {
    if (view.rank_of(one.uid) >= 0 || one.host != host_) continue;
    const Result<Contact> contact = parse_contact(one.contact);
    const Status ended = contact.is_ok() ? end_process(contact.value(), kEnding) : contact.status();
    if (!ended.is_ok())
      return {Code::kUnavailable, "view " + std::to_string(view.number) + " leaves out " + one.uid +
                                      ", which shares memory with this process: " + ended.why +
                                      "; this process has to end."};
  }
  const std::string text = text_of(encode(view));
  own_->put(membership::view_key(view.number), text);
  own_->put(std::string(membership::kNewestKey), text);
  // Who asks for votes now comes too late. What was accepted is not needed any more.
  own_->put(membership::vote_key(view.number), text_of(encode(membership::closed())));
  own_->put(membership::left_key(view.number - 1), "");
  if (view.number > kKeptViews) own_->put(membership::view_key(view.number - kKeptViews), "");
  for (const Member& one : view.members) own_->forget(one.uid);
  peers_->keep(view);
  return Status::ok();
}

// A member that completes commit k + 2 has had the contribution of this process to it, which comes after this
// call. So all hear of the order before they can make that commit, if each commit follows a collective of
// all; one that has gone further leaves at its next commit.
void MemberViews::committed(const View& view, Commit commit) {
  if (own_ == nullptr || asked_view_ == view.number || view.rank_of(uid_) != 0) return;
  // In the first view nobody has said of what the state is made, so the members meet to find it out.
  for (const Ready& one : own_->joiners())
    if (const std::string why = why_not_admitted(one, digest_); !why.empty()) {
      RUEDA_LOG(kWarning, "process " + one.uid + ": " + why);
      refuse(one.uid, why);
    }
  if (own_->joiners().empty() || living_joiners(view).empty()) return;
  asked_view_ = view.number;
  const LeaveAt order{.view = view.number, .commit = commit + kCommitsAhead};
  own_->set_leave_at(order.view, order.commit);
  std::vector<Member> others;
  for (const Member& one : view.members)
    if (one.uid != uid_) others.push_back(one);
  MemberPeers::ask_all(
      others, [&](const Member& one) { return peers_->set(one, membership::kLeaveAtKey, to_text(order)); });
}

bool MemberViews::is_one_missing(const View& view) {
  const std::span<const Member> all(view.members);
  const bool is_first = view.rank_of(uid_) == 0;
  const auto answers = [&](const Member& one) {
    const Said said = peers_->value(one, membership::kNewestKey);
    return one.uid == uid_ || said.how == Said::How::kYes || said.how == Said::How::kNotYet;
  };
  return !std::ranges::all_of(is_first ? all.subspan(1) : all.first(1), answers);
}

}  // namespace rueda::members
