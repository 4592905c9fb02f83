#include "rueda/runtime/elastic_rank.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "rueda/base/numbers.h"
#include "rueda/membership/keys.h"

namespace rueda::runtime {
namespace {

constexpr Nanos kLook = 100 * kMillisecond;  // between looks whether the caller wants to give up
constexpr Nanos kReply = 10 * kSecond;       // for one answer of the launcher's store

std::string text_of(const store::GetEnv& get_env, const char* name) {
  const char* const value = get_env(name);
  return value == nullptr ? std::string() : value;
}

Status launcher_gone(const Status& why) {
  return {Code::kPeerLost,
          "the launcher of this elastic job has ended or cannot be reached, so there is no next view: " +
              why.why};
}

}  // namespace

ElasticRank::ElasticRank(const store::GetEnv& get_env) {
  const std::string uid = text_of(get_env, membership::kUidVariable);
  if (uid.empty()) return;
  std::string host = uid.substr(0, uid.rfind(':'));
  membership_.emplace(uid, std::move(host));
  is_in_first_ = text_of(get_env, membership::kFirstViewVariable) == "1";
  const double seconds = std::atof(text_of(get_env, membership::kTimeoutVariable).c_str());
  if (seconds > 0) timeout_ = nanos(seconds, kSecond);
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
  world.local_rank = place.local_rank;
  world.local_size = place.local_size;
  return world;
}

Status ElasticRank::join(RendezvousPoint& point, store::World world, const std::string& interface,
                         const JoinRequest& request) {
  const Deadline deadline = Deadline::after(request.timeout > 0 ? request.timeout : timeout_);
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
  is_spent_ = true;
  membership::Ready ready = membership_->leave(request.commit, request.digest);
  if (const membership::View* const left = membership_->view(); left != nullptr && cut_from_ >= 0)
    if (std::cmp_less(cut_from_, left->members.size()))
      ready.cut_from = left->members[static_cast<size_t>(cut_from_)].uid;
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
