#include "rueda/runtime/elastic_rank.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string_view>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/base/counted.h"
#include "rueda/base/log.h"
#include "rueda/base/numbers.h"
#include "rueda/base/socket.h"
#include "rueda/membership/keys.h"
#include "rueda/store/hex.h"
#include "rueda/store/members.h"

namespace rueda::runtime {
namespace {

constexpr Nanos kLook = 100 * kMillisecond;  // between looks whether the caller wants to give up
constexpr Nanos kReply = 10 * kSecond;       // for one answer of the launcher's store
constexpr Nanos kWatch = kSecond / 2;        // between looks at the other members in an init

std::string text_of(const store::GetEnv& get_env, const char* name) {
  const char* const value = get_env(name);
  return value == nullptr ? std::string() : value;
}

// Of a process that no launcher names. It is never used again, so the successor of a process that has ended
// is another member, and nothing needs to outlive a process.
std::string fresh_uid(const std::string& host) {
  const auto number = (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  return host + ":" + std::to_string(getpid()) + "#" + store::to_hex(std::as_bytes(std::span(&number, 1)));
}

Status launcher_gone(const Status& why) {
  return {Code::kPeerLost,
          "the launcher of this elastic job has ended or cannot be reached, so there is no next view: " +
              why.why};
}

}  // namespace

ElasticRank::ElasticRank(const store::GetEnv& get_env) {
  const double seconds = std::atof(text_of(get_env, membership::kTimeoutVariable).c_str());
  if (seconds > 0) timeout_ = nanos(seconds, kSecond);
  if (store::is_elastic_by_members(get_env)) {
    std::string host = store::host_name(get_env);
    const std::string uid = fresh_uid(host);
    membership_.emplace(uid, host);
    members_ = std::make_unique<members::MemberViews>(uid, std::move(host),
                                                      text_of(get_env, membership::kMembersVariable));
    is_joiner_ = text_of(get_env, membership::kJoinerVariable) == "1";
    return;
  }
  const std::string uid = text_of(get_env, membership::kUidVariable);
  if (uid.empty()) return;
  std::string host = uid.substr(0, uid.rfind(':'));
  membership_.emplace(uid, std::move(host));
  is_in_first_ = text_of(get_env, membership::kFirstViewVariable) == "1";
}

Status ElasticRank::begin(const store::World& world, const std::string& interface,
                          const members::ViewWait& wait) {
  const Result<membership::View> first = members_->begin(world, interface, wait);
  if (!first.is_ok()) return first.status();
  if (Status s = members_->install(first.value(), nullptr); !s.is_ok()) return s;
  (void)membership_->on_view(first.value());
  return Status::ok();
}

bool ElasticRank::must_join() const {
  if (!is_elastic()) return false;
  return is_spent_ || (!is_in_first_ && (membership_->number() == 0 || membership_->has_left()));
}

const membership::View* ElasticRank::view() const {
  return is_elastic() && !is_in_first_ ? membership_->view() : nullptr;
}

store::World ElasticRank::seated(store::World world) const {
  if (!is_elastic()) return world;
  world.is_elastic = true;
  world.view = is_in_first_ ? 1 : membership_->number();
  const membership::View* const view = this->view();
  if (view == nullptr) return world;
  world.rank = view->rank_of(uid());
  world.size = view->size();
  const membership::Position place = position_of(world.rank, *view);
  if (members_) {
    // Its rank 0 serves the store in which the ranks of a view meet.
    const Result<members::Contact> first = members::parse_contact(view->members.front().contact);
    RUEDA_CHECK(first.is_ok(), "it was read when the view was installed");
    world.method = store::World::Method::kUrl;
    world.url = "tcp://" + host_and_port(first.value().address, first.value().port);
    world.is_store_served = true;
  }
  world.local_rank = place.local_rank;
  world.local_size = place.local_size;
  return world;
}

Status ElasticRank::join(RendezvousPoint& point, store::World world, const std::string& interface,
                         const JoinRequest& request) {
  const Deadline deadline = Deadline::after(request.timeout > 0 ? request.timeout : timeout_);
  if (members_) return join_members(world, interface, leave(request), {deadline, request.is_interrupted});
  world = seated(std::move(world));
  if (Status s = point.open(world, interface, deadline); !s.is_ok()) return launcher_gone(s);
  store::Store& store = point.whole_store();
  if (std::exchange(is_in_first_, false)) {
    const Result<membership::View> first = read_view(store, "1", deadline);
    if (!first.is_ok()) {
      is_in_first_ = true;
      return first.status();
    }
    (void)membership_->on_view(first.value());
  }
  const membership::Ready ready = leave(request);
  const Bytes raw = encode(ready);
  const std::string_view text(reinterpret_cast<const char*>(raw.data()), raw.size());
  if (Status s = store.set(membership::ready_key(uid()), text, Deadline::after(kReply)); !s.is_ok())
    return launcher_gone(s);
  const Result<std::string> answer = await_answer(store, ready.after, request, deadline);
  if (!answer.is_ok()) return answer.status();
  if (!answer.value().starts_with(membership::kAnswerView))
    return {Code::kUnavailable,
            answer.value().substr(std::min(answer.value().size(), membership::kAnswerNo.size()))};
  const std::string number = answer.value().substr(membership::kAnswerView.size());
  const Result<membership::View> view = read_view(store, number, Deadline::after(kReply));
  if (!view.is_ok()) return view.status();
  if (membership_->on_view(view.value()) != membership::Membership::Outcome::kInstalled)
    return {Code::kInternal, "the launcher named view " + number + ", to which this process does not belong"};
  is_spent_ = false;
  cut_from_ = -1;
  return Status::ok();
}

// For good: this process commits nothing any more in the view that it leaves.
membership::Ready ElasticRank::leave(const JoinRequest& request) {
  is_spent_ = true;
  membership::Ready ready = membership_->leave(request.commit, request.digest);
  if (const membership::View* const left = membership_->view(); left != nullptr && cut_from_ >= 0)
    if (std::cmp_less(cut_from_, left->members.size()))
      ready.cut_from = left->members[static_cast<size_t>(cut_from_)].uid;
  return ready;
}

Status ElasticRank::join_members(const store::World& world, const std::string& interface,
                                 const membership::Ready& mine, const members::ViewWait& wait) {
  std::optional<membership::View> last;
  if (const membership::View* const left = membership_->view(); left != nullptr) last = *left;
  const Result<membership::View> next =
      last ? members_->next(*last, mine, timeout_, wait) : members_->join(world, interface, mine, wait);
  if (!next.is_ok()) return next.status();
  const membership::View& view = next.value();
  if (membership_->on_view(view) != membership::Membership::Outcome::kInstalled)
    return {Code::kUnavailable, "this process was excluded from view " + std::to_string(view.number) +
                                    " of the job, which the other members have decided; it has to end."};
  if (Status s = members_->install(view, last ? &*last : nullptr); !s.is_ok()) return s;
  RUEDA_LOG(kInfo, "view " + std::to_string(view.number) + " has " + counted(view.size(), "rank"));
  is_spent_ = false;
  cut_from_ = -1;
  return Status::ok();
}

store::Interrupted ElasticRank::watching(store::Interrupted given, std::shared_ptr<bool> is_missing) {
  if (!members_ || view() == nullptr) return given;
  return [this, given = std::move(given), is_missing = std::move(is_missing),
          next = monotonic_now() + kWatch]() mutable {
    if (*is_missing || store::is_set(given)) return true;
    if (monotonic_now() < next) return false;
    *is_missing = members_->is_one_missing(*view());
    next = monotonic_now() + kWatch;
    return *is_missing;
  };
}

Result<membership::View> ElasticRank::read_view(store::Store& store, const std::string& number,
                                                Deadline deadline) {
  const Result<std::string> raw =
      store.get("elastic/view/" + number, Deadline::at(std::min(deadline.when(), monotonic_now() + kReply)));
  if (!raw.is_ok()) return launcher_gone(raw.status());
  return membership::decode_view(std::as_bytes(std::span(raw.value())));
}

Result<std::string> ElasticRank::await_answer(store::Store& store, int64_t after, const JoinRequest& request,
                                              Deadline deadline) {
  const std::string key = membership::answer_key(uid(), after);
  while (true) {
    Result<std::string> answer =
        store.get(key, Deadline::at(std::min(deadline.when(), monotonic_now() + kLook)));
    if (answer.is_ok()) return answer;
    if (answer.status().code != Code::kTimeout) return launcher_gone(answer.status());
    if (store::is_set(request.is_interrupted)) return store::interrupted_status();
    if (!deadline.is_past()) continue;
    const Result<std::string> awaited = store.try_get(membership::kAwaitedKey, Deadline::after(kReply));
    return Status(Code::kTimeout,
                  "the next view of this elastic job was not decided in time; " +
                      (awaited.is_ok() && !awaited.value().empty()
                           ? "it waits for " + awaited.value()
                           : std::string("the launcher waits for enough processes (--min-np)")) +
                      ".");
  }
}

}  // namespace rueda::runtime
