// A device of the tests' own, and a backend for its memory. Streams are threads: work that is enqueued there
// runs later, after delays that a seed decides, and launching returns at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"

namespace rueda::device_test {

class Stream {
 public:
  explicit Stream(uint32_t seed) : random_(seed), thread_([this] { run(); }) {}
  ~Stream() {  // after everything that is enqueued
    enqueue({});
    thread_.join();
  }
  void enqueue(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }
  void synchronize() {
    std::atomic<bool> has_come{false};
    enqueue([&] { has_come = true, has_come.notify_all(); });
    has_come.wait(false);
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !queue_.empty(); });
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (!work) return;
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::minstd_rand random_;
  std::thread thread_;
};

class Event final : public backend::DeviceEvent, public std::enable_shared_from_this<Event> {
 public:
  [[nodiscard]] Status make_stream_wait(void* stream) override {
    if (const auto known = outcome(); known && !known->is_ok()) return *known;
    if (stream == nullptr) return {Code::kInvalidArgument, "null is no stream of this device."};
    static_cast<Stream*>(stream)->enqueue([self = shared_from_this()] { (void)self->wait(std::nullopt); });
    return Status::ok();
  }
  [[nodiscard]] std::optional<Status> outcome() override {
    const std::lock_guard lock(mutex_);
    return outcome_;
  }
  [[nodiscard]] std::optional<Status> wait(std::optional<Deadline> deadline) override {
    std::unique_lock lock(mutex_);
    const auto has_happened = [this] { return outcome_.has_value(); };
    if (deadline)
      happened_.wait_for(lock, std::chrono::nanoseconds(deadline->when() - monotonic_now()), has_happened);
    else
      happened_.wait(lock, has_happened);
    return outcome_;
  }
  // Only the first time counts.
  void happen(const Status& how) {
    const std::lock_guard lock(mutex_);
    if (outcome_) return;
    outcome_ = how;
    happened_.notify_all();
  }
  // Works for the call, unless it has happened: nothing touches its buffers then. False if so.
  bool work(const std::function<void()>& what) {
    const std::lock_guard lock(mutex_);
    if (!outcome_) what();
    return !outcome_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable happened_;
  std::optional<Status> outcome_;
};

// What connects the devices of all ranks.
class Fabric {
 public:
  explicit Fabric(Rank ranks) : ranks_(static_cast<size_t>(ranks)), has_left_(ranks_, false) {}

  // Waits until every rank has brought its values for this call, or this rank leaves. Returns the sums, or
  // mine as it was.
  std::vector<float> sum(uint64_t call, Rank me, std::vector<float> mine) {
    std::unique_lock lock(mutex_);
    Meeting& meeting = meetings_[call];
    meeting.values.resize(ranks_);
    meeting.values[static_cast<size_t>(me)] = mine;
    ++meeting.come;
    changed_.notify_all();
    changed_.wait(lock, [&] { return meeting.come == ranks_ || has_left_[static_cast<size_t>(me)]; });
    if (meeting.come < ranks_) return mine;
    std::vector<float> sums = meeting.values.front();
    for (size_t rank = 1; rank < ranks_; ++rank)
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += meeting.values[rank][i];
    return sums;
  }
  void leave(Rank me) {
    const std::lock_guard lock(mutex_);
    has_left_[static_cast<size_t>(me)] = true;
    changed_.notify_all();
  }

 private:
  struct Meeting {
    std::vector<std::vector<float>> values;  // [ranks]
    size_t come = 0;
  };
  size_t ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Meeting> meetings_;
  std::vector<bool> has_left_;
};

// Sums of float32 in device memory, which is memory of this process. hold() and the like: any thread.
class DeviceBackend final : public backend::Backend {
 public:
  DeviceBackend(std::shared_ptr<Fabric> fabric, Rank me, uint32_t seed)
      : fabric_(std::move(fabric)), me_(me), stream_(seed) {}
  ~DeviceBackend() override {
    release();
    fabric_->leave(me_);
  }

  [[nodiscard]] std::string_view name() const override { return "device"; }
  [[nodiscard]] bool accepts(const Group&, const schedule::Spec& spec, const Memory& memory) const override {
    return memory.kind == MemoryKind::kDevice && spec.what == Collective::kAllreduce &&
           spec.op == ReduceOp::kSum && spec.dtype == DType::kFloat32;
  }
  [[nodiscard]] bool has_room(uint64_t) const override { return true; }
  void start(const backend::Call& call) override {
    if (const Status fault = get(launch_fault_); !fault.is_ok()) {
      done_.push_back({.id = call.id, .status = fault, .how = "device"});
      return;
    }
    auto event = std::make_shared<Event>();
    const std::vector<backend::Segment> segments(call.segments.begin(), call.segments.end());
    for (const backend::Segment& segment : segments) awaited.push_back(segment.memory.ready);
    stream_.enqueue([this, event, segments, order = call.order] { reduce(*event, segments, order); });
    ++launches;
    open_.push_back(event);
    done_.push_back({.id = call.id, .status = Status::ok(), .how = "device", .event = event});
  }
  bool progress(std::vector<backend::Done>& done) override {
    for (backend::Done& each : done_) done.push_back(std::move(each));
    return !std::exchange(done_, {}).empty();
  }
  [[nodiscard]] bool is_idle() const override {
    const auto has_happened = [](const auto& event) { return event->outcome().has_value(); };
    return done_.empty() && std::ranges::all_of(open_, has_happened);
  }
  void abort(const Status& why) override {
    fabric_->leave(me_);
    for (const auto& event : open_) event->happen(why);
    done_.clear();
  }

  // What is launched does not run on the device before release().
  void hold() { is_held_ = true; }
  void release() {
    is_held_ = false;
    is_held_.notify_all();
  }
  void fail_on_device(Status fault) { set(fault_, std::move(fault)); }
  void fail_launches(Status fault) { set(launch_fault_, std::move(fault)); }
  std::atomic<int> launches{0};
  std::vector<void*> awaited;  // the events of all tensors so far; engine thread, or after a launch was seen

 private:
  void reduce(Event& event, const std::vector<backend::Segment>& segments, uint64_t order) {
    is_held_.wait(true);
    std::vector<float> values;
    for (const backend::Segment& segment : segments)
      wait_for(static_cast<Event*>(segment.memory.ready), event);
    if (!event.work([&] { values = gather(segments); })) return;
    values = fabric_->sum(order, me_, std::move(values));
    const Status fault = get(fault_);
    if (fault.is_ok()) event.work([&] { scatter(values, segments); });
    event.happen(fault);
  }
  // Also ends when the call has ended: by abort().
  static void wait_for(Event* ready, Event& call) {
    while (ready != nullptr && !call.outcome() && !ready->wait(Deadline::after(kMillisecond))) {
    }
  }
  Status get(const Status& status) {
    const std::lock_guard lock(mutex_);
    return status;
  }
  void set(Status& status, Status value) {
    const std::lock_guard lock(mutex_);
    status = std::move(value);
  }
  static std::vector<float> gather(const std::vector<backend::Segment>& segments) {
    std::vector<float> values;
    for (const backend::Segment& segment : segments) {
      const auto* input = static_cast<const float*>(segment.input);
      values.insert(values.end(), input, input + segment.count);
    }
    return values;
  }
  static void scatter(const std::vector<float>& sums, const std::vector<backend::Segment>& segments) {
    const float* next = sums.data();
    for (const backend::Segment& segment : segments) {
      std::copy_n(next, segment.count, static_cast<float*>(segment.output));
      next += segment.count;
    }
  }

  std::shared_ptr<Fabric> fabric_;
  Rank me_;
  std::atomic<bool> is_held_{false};
  std::mutex mutex_;
  Status fault_, launch_fault_;  // under the mutex
  std::vector<std::shared_ptr<Event>> open_;
  std::vector<backend::Done> done_;
  Stream stream_;  // last: its thread uses everything above
};

}  // namespace rueda::device_test
