#include "rueda/backend/selector.h"

#include <algorithm>
#include <utility>

#include "rueda/base/check.h"

namespace rueda::backend {

Selector::Selector(std::vector<std::unique_ptr<Backend>> backends) : backends_(std::move(backends)) {
  RUEDA_CHECK(!backends_.empty(), "a choice needs something to choose from");
}

Backend& Selector::choose(const Group& group, const schedule::Spec& spec) const {
  for (const auto& backend : backends_)
    if (backend->accepts(group, spec)) return *backend;
  RUEDA_CHECK(false, "no backend accepts a call");
  return *backends_.back();
}

bool Selector::accepts(const Group& group, const schedule::Spec& spec) const {
  return std::ranges::any_of(backends_, [&](const auto& backend) { return backend->accepts(group, spec); });
}

bool Selector::takes_pieces(const Group& group, const schedule::Spec& spec) const {
  return choose(group, spec).takes_pieces(group, spec);
}

void Selector::start(const Call& call) { queue_.push_back({.call = call, .drained = std::nullopt}); }

void Selector::drain(const Call& call, std::vector<int32_t> arrivals) {
  queue_.push_back({.call = call, .drained = std::move(arrivals)});
}

bool Selector::progress(std::vector<Done>& done) {
  bool moved = !aborted_.empty();
  for (Done& each : std::exchange(aborted_, {})) done.push_back(std::move(each));
  if (!queue_.empty() && (busy_ == nullptr || busy_->is_idle())) {
    auto [call, drained] = std::move(queue_.front());
    queue_.pop_front();
    busy_ = &choose(*call.group, call.spec);
    if (drained)
      busy_->drain(call, std::move(*drained));
    else
      busy_->start(call);
    moved = true;
  }
  return (busy_ != nullptr && busy_->progress(done)) || moved;
}

bool Selector::is_idle() const { return queue_.empty() && (busy_ == nullptr || busy_->is_idle()); }

bool Selector::prepare_sleep() {
  if (!queue_.empty() && (busy_ == nullptr || busy_->is_idle())) return false;
  return busy_ == nullptr || busy_->prepare_sleep();
}

void Selector::wake_up() {
  if (busy_ != nullptr) busy_->wake_up();
}

std::vector<int32_t> Selector::pause() { return busy_ == nullptr ? std::vector<int32_t>() : busy_->pause(); }

void Selector::resume() {
  if (busy_ != nullptr) busy_->resume();
}

void Selector::cancel(std::span<const int32_t> arrivals) {
  RUEDA_CHECK(queue_.empty() && busy_ != nullptr, "a call that may be cancelled runs alone");
  busy_->cancel(arrivals);
}

void Selector::abort(const Status& why) {
  for (const auto& backend : backends_) backend->abort(why);
  for (const Queued& each : queue_) aborted_.push_back({.id = each.call.id, .status = why});
  queue_.clear();
}

}  // namespace rueda::backend
