#include "rueda/members/member_peers.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "rueda/base/sleep.h"
#include "rueda/base/thread.h"
#include "rueda/members/own_words.h"
#include "rueda/store/tcp_store.h"

namespace rueda::members {
namespace {

using membership::Member;

constexpr Nanos kMemberLook = 300 * kMillisecond;  // for a value that a member may set soon
constexpr Nanos kSilence = 5 * kSecond;            // as long as a process may be stopped
constexpr Nanos kRefusedAgain = 50 * kMillisecond;
constexpr Nanos kEndSeen = kSecond;  // from the loss of a connection to the end of the process behind it
constexpr size_t kMostThreads = 32;

// Ports are used again: a process that joins may listen where the member did. Its answers are not the
// member's.
Status another_process(const Contact& contact) {
  return {Code::kPeerLost,
          "another process listens at " + contact.address + ":" + std::to_string(contact.port) + " by now"};
}

}  // namespace

std::unique_ptr<store::Store>& MemberPeers::line(const membership::Uid& uid) {
  const std::scoped_lock lock(mutex_);
  return lines_[uid];
}

void MemberPeers::keep(const membership::View& view) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(lines_, [&](const auto& one) { return view.rank_of(one.first) < 0; });
}

// A member serves its store as long as its process lives, so one that refuses twice has ended.
Status MemberPeers::connect(const Contact& contact, std::unique_ptr<store::Store>& store) const {
  const Deadline deadline = Deadline::after(kSilence);
  int refused = 0;
  while (true) {
    HandshakeOutcome outcome{};
    Result<std::unique_ptr<store::Store>> dialled =
        store::dial_process_once(own_.site_of(contact.address, contact.port), deadline, outcome);
    if (dialled.is_ok()) {
      const Result<std::string> who = dialled.value()->get(kContactKey, deadline);
      if (!who.is_ok()) return who.status();
      if (who.value() != to_text(contact)) return another_process(contact);
      store = std::move(dialled).value();
      return Status::ok();
    }
    const Code code = dialled.status().code;
    if (code == Code::kPermissionDenied || deadline.is_past()) return dialled.status();
    if (code == Code::kUnavailable && ++refused == 2) return dialled.status();
    sleep_for(kRefusedAgain);
  }
}

Said MemberPeers::call(const Member& member, const Call& call) {
  const Result<Contact> contact = parse_contact(member.contact);
  if (!contact.is_ok()) return {};
  const bool is_here = is_neighbour(member);
  if (is_here && has_ended(contact.value())) return {.how = Said::How::kEnded};
  std::unique_ptr<store::Store>& store = line(member.uid);
  Status status;
  for (bool was_open = true; was_open;) {
    was_open = store != nullptr;
    status = was_open ? Status::ok() : connect(contact.value(), store);
    std::string text;
    if (status.is_ok()) status = call(*store, text);
    if (status.is_ok()) return {.how = Said::How::kYes, .text = std::move(text)};
    if (status.code == Code::kUnavailable && store != nullptr) return {.how = Said::How::kNotYet};
    store.reset();
    if (status.code != Code::kPeerLost) break;  // else it is connected again, to the same process
  }
  // A connection ends a little before its process does.
  const Deadline seen = Deadline::after(status.code == Code::kTimeout ? 0 : kEndSeen);
  while (is_here && shares_pids(contact.value())) {
    if (has_ended(contact.value())) return {.how = Said::How::kEnded};
    if (seen.is_past()) break;
    sleep_for(5 * kMillisecond);
  }
  // It is only slow. Whether it is lost is seen here.
  if (is_here && is_at_work(contact.value())) return {.how = Said::How::kNotYet};
  return {};
}

bool MemberPeers::has_gone(const Member& member, const Said& said) const {
  if (said.how == Said::How::kEnded) return true;
  if (said.how != Said::How::kSilent || !is_neighbour(member)) return false;
  const Result<Contact> contact = parse_contact(member.contact);
  return contact.is_ok() && end_process(contact.value(), kEnding).is_ok();
}

Said MemberPeers::value(const Member& member, std::string_view key) {
  return call(member, [&](store::Store& store, std::string& text) {
    Result<std::string> found = store.get(key, Deadline::after(kMemberLook));
    // Nobody says whether the key or the answer did not come in time.
    if (!found.is_ok() && found.status().code == Code::kTimeout)
      found = store.try_get(key, Deadline::after(kSilence));
    if (!found.is_ok()) return found.status();
    text = std::move(found).value();
    return Status::ok();
  });
}

Said MemberPeers::set(const Member& member, std::string_view key, std::string_view value) {
  return call(member, [&](store::Store& store, std::string&) {
    return store.set(key, value, Deadline::after(kSilence));
  });
}

Said MemberPeers::compare_and_set(const Member& member, std::string_view key, std::string_view expected,
                                  std::string_view value) {
  return call(member, [&](store::Store& store, std::string& text) {
    Result<std::string> now = store.compare_and_set(key, expected, value, Deadline::after(kSilence));
    if (!now.is_ok()) return now.status();
    text = std::move(now).value();
    return Status::ok();
  });
}

std::vector<Said> MemberPeers::ask_all(const std::vector<Member>& members, const Ask& ask) {
  std::vector<Said> all(members.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < members.size(); i = next++) all[i] = ask(members[i]);
  };
  {
    std::vector<std::jthread> threads(std::min(members.size(), kMostThreads));
    for (std::jthread& thread : threads)
      if (!start_thread(thread, "the members of this job", work).is_ok()) break;
    work();  // also where no thread could be started
  }
  return all;
}

}  // namespace rueda::members
