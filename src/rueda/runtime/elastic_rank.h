// This process in an elastic job: the view to which it belongs, and how it joins the next one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rueda/base/clock.h"
#include "rueda/membership/member.h"
#include "rueda/runtime/init_exchange.h"
#include "rueda/store/world.h"

namespace rueda::runtime {

// What a process says when it joins.
struct JoinRequest {
  membership::Commit commit = membership::kNoCommit;  // the newest that it holds
  std::string digest{};                               // of the names, shapes and types of its state
  Nanos timeout = 0;                                  // 0: as long as the launcher allows
  store::Interrupted is_interrupted = {};
};

// One thread at a time.
class ElasticRank {
 public:
  explicit ElasticRank(const store::GetEnv& get_env);

  [[nodiscard]] bool is_elastic() const { return membership_.has_value(); }
  // The next init has to wait for a view: this process belongs to none, or its epoch there has failed.
  [[nodiscard]] bool must_join() const;
  // An epoch of this view, or an init in it, has failed. Another one cannot succeed.
  // cut_from: the rank whose host acknowledged nothing; -1: none.
  void spend(Rank cut_from = -1) {
    is_spent_ = true;
    cut_from_ = cut_from;
  }
  // Not in an epoch. Returns when this process belongs to the next view.
  Status join(RendezvousPoint& point, store::World world, const std::string& interface,
              const JoinRequest& request);
  // The place of this process in the view, instead of the one that the environment gives.
  [[nodiscard]] store::World seated(store::World world) const;
  // Null if it has not joined one yet; the processes that were started first begin in view 1.
  [[nodiscard]] const membership::View* view() const;
  [[nodiscard]] const membership::Uid& uid() const { return membership_->uid(); }

 private:
  Result<membership::View> read_view(store::Store& store, const std::string& number, Deadline deadline);
  Result<std::string> await_answer(store::Store& store, int64_t after, const JoinRequest& request,
                                   Deadline deadline);

  std::optional<membership::Membership> membership_;
  bool is_in_first_ = false;  // it belongs to view 1, which it need not know
  bool is_spent_ = false;
  Rank cut_from_ = -1;  // in the view to which it belongs
  Nanos timeout_ = 600 * kSecond;
};

}  // namespace rueda::runtime
