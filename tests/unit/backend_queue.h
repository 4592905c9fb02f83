// What the dispatcher does for a backend, for tests: keeps calls until the backend has room, in start order.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"

namespace rueda::backend_test {

// A call of one tensor, or of the segments given.
struct TestCall {
  backend::CallId id = 0;
  const Group* group = nullptr;
  schedule::Spec spec;
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<backend::Segment> segments = {};
  double prescale = 1.0;
  bool may_be_cancelled = false;
  uint16_t generation = 0;
  backend::ActivitySink* activities = nullptr;
};

template <class B>
class Queue {
 public:
  explicit Queue(std::unique_ptr<B> backend) : backend_(std::move(backend)) {}

  void start(const TestCall& call) {
    waiting_.push_back({keep(call), {}, false});
    start_next();
  }
  void discard(const TestCall& call, std::vector<int32_t> arrivals) {
    waiting_.push_back({keep(call), std::move(arrivals), true});
    start_next();
  }
  bool progress(std::vector<backend::Done>& done) {
    const size_t before = done.size();
    bool moved = backend_->progress(done);
    if (done.size() > before && !done.back().how.empty()) last_how_ = done.back().how;
    for (backend::Done& each : std::exchange(aborted_, {})) done.push_back(std::move(each));
    while (start_next()) moved = true;
    return moved;
  }
  void abort(const Status& why) {
    backend_->abort(why);
    for (const Waiting& each : waiting_) aborted_.push_back({.id = each.call->call.id, .status = why});
    waiting_.clear();
  }
  [[nodiscard]] bool is_idle() const { return backend_->is_idle() && waiting_.empty() && aborted_.empty(); }
  std::vector<int32_t> pause(backend::CallId call) { return backend_->pause(call); }
  void resume(backend::CallId call) { backend_->resume(call); }
  void cancel(backend::CallId call, std::span<const int32_t> arrivals) { backend_->cancel(call, arrivals); }
  bool prepare_sleep() { return backend_->prepare_sleep(); }
  void wake_up() { backend_->wake_up(); }
  [[nodiscard]] std::string_view last_how() const { return last_how_; }
  [[nodiscard]] B& backend() { return *backend_; }

 private:
  struct Kept {
    TestCall call;
    std::vector<backend::Segment> segments;
  };
  struct Waiting {
    Kept* call;
    std::vector<int32_t> arrivals;
    bool is_discarded;
  };
  Kept* keep(const TestCall& call) {
    kept_.push_back({call, call.segments});
    Kept& kept = kept_.back();
    if (kept.segments.empty() && call.spec.what != Collective::kBarrier)
      kept.segments.push_back({.input = call.input,
                               .output = call.output,
                               .count = call.spec.count,
                               .counts = kept.call.spec.counts});
    return &kept;
  }
  bool start_next() {
    if (waiting_.empty() || !backend_->has_room(next_order_)) return false;
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    const TestCall& wanted = next.call->call;
    const backend::Call call{.id = wanted.id,
                             .order = next_order_++,
                             .group = wanted.group,
                             .spec = wanted.spec,
                             .segments = next.call->segments,
                             .prescale = wanted.prescale,
                             .may_be_cancelled = wanted.may_be_cancelled,
                             .generation = wanted.generation,
                             .activities = wanted.activities};
    if (next.is_discarded)
      backend_->discard(call, next.arrivals);
    else
      backend_->start(call);
    return true;
  }

  std::unique_ptr<B> backend_;
  std::deque<Kept> kept_;
  std::deque<Waiting> waiting_;
  std::vector<backend::Done> aborted_;
  uint64_t next_order_ = 0;
  std::string_view last_how_ = "";
};

}  // namespace rueda::backend_test
