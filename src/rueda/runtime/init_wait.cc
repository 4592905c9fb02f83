#include "rueda/runtime/init_wait.h"

#include <utility>

#include "rueda/base/log.h"
#include "rueda/control/mismatch.h"

namespace rueda::runtime {
namespace {

constexpr Nanos kLongWait = 5 * kSecond;
constexpr Nanos kFindEvery = 2 * kSecond;

std::string sentence_of(const InitWait::View& view, Nanos now) {
  const std::string who = "rank " + std::to_string(view.rank);
  const std::string waited = " for " + std::to_string((now - view.since) / kSecond) + " s";
  const std::string todo =
      ". Start every rank, and look at firewalls; RUEDA_START_TIMEOUT says when init gives up.";
  // Without rank 0 the others do not find one another, and this one cannot tell why it does not answer.
  if (view.missing.front() == 0)
    return "rank 0 of " + std::to_string(view.size) + " has not called init, or cannot be reached" +
           (view.met_at.empty() ? "" : " at " + view.met_at) + "; " + who + " has waited for it" + waited +
           todo;
  // A rank that the network keeps from the store looks the same from here.
  const bool is_one = view.missing.size() == 1;
  return std::to_string(view.missing.size()) + " of " + std::to_string(view.size) + " ranks " +
         (is_one ? "is" : "are") + " missing in init, for which " + who + " has waited" + waited + ": " +
         control::rank_list(view.missing) + ". Either " + (is_one ? "it has" : "they have") +
         " not called init, or cannot connect" + (view.met_at.empty() ? "" : " to " + view.met_at) + todo;
}

}  // namespace

void InitWait::begin(Rank rank, Rank size, std::string met_at, bool is_told, Nanos now) {
  const std::lock_guard lock(mutex_);
  view_ = View{.rank = rank, .size = size, .met_at = std::move(met_at), .since = now, .missing = {}};
  if (rank != 0) view_->missing = {0};
  found_at_ = 0;
  has_said_ = is_told;
}

void InitWait::end() {
  const std::lock_guard lock(mutex_);
  view_.reset();
}

bool InitWait::is_due(Nanos now) const {
  const std::lock_guard lock(mutex_);
  return view_ && now - view_->since >= kLongWait && now - found_at_ >= kFindEvery;
}

void InitWait::found(std::vector<Rank> missing, Nanos now) {
  const std::lock_guard lock(mutex_);
  if (view_) view_->missing = std::move(missing);
  found_at_ = now;
}

std::string InitWait::take_sentence(Nanos now) {
  const std::lock_guard lock(mutex_);
  if (!view_ || has_said_ || view_->missing.empty() || now - view_->since < kLongWait) return {};
  const bool is_told = view_->rank == 0 || view_->size <= kSmallWorld || view_->missing.front() == 0;
  if (!is_told) return {};
  has_said_ = true;
  return sentence_of(*view_, now);
}

void InitWait::say(Nanos now) {
  if (const std::string text = take_sentence(now); !text.empty()) RUEDA_LOG(kWarning, text);
}

std::optional<InitWait::View> InitWait::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

}  // namespace rueda::runtime
