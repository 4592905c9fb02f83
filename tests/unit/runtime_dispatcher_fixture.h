// Rank 0 of two, whose backends run calls until a test says that they are done.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rueda/runtime/dispatcher.h"

namespace rueda::runtime::dispatcher_test {

using backend::Backend;
using backend::Call;

// Runs calls until it is told that they are done.
class FakeBackend final : public Backend, public backend::Cancellation {
 public:
  FakeBackend(DType mine, size_t room) : mine_(mine), room_(room) {}

  [[nodiscard]] std::string_view name() const override { return "fake"; }
  [[nodiscard]] bool accepts(const Group&, const schedule::Spec& spec, const Memory& memory) const override {
    EXPECT_EQ(memory.ready, nullptr) << "the answer must not depend on it";
    return spec.dtype == mine_ && (takes_devices || memory.kind != MemoryKind::kDevice);
  }
  [[nodiscard]] backend::Cancellation* cancellation() override { return this; }
  [[nodiscard]] bool has_room(uint64_t) const override { return running_.size() < room_; }
  void start(const Call& call) override {
    ASSERT_TRUE(has_room(call.order));
    running_.push_back(call.id);
    orders.push_back(call.order);
    segments.push_back(call.segments.size());
    for (const backend::Segment& segment : call.segments) events.push_back(segment.memory.ready);
    started.push_back(call.segments.empty() ? 0 : call.segments.front().count);
  }
  bool progress(std::vector<backend::Done>& done) override {
    for (backend::Done& each : finished_) done.push_back(std::move(each));
    return !std::exchange(finished_, {}).empty();
  }
  [[nodiscard]] bool is_idle() const override { return running_.empty() && finished_.empty(); }
  void abort(const Status&) override {}
  std::vector<int32_t> pause(backend::CallId call) override { return {1, static_cast<int32_t>(call)}; }
  void cancel(backend::CallId call, std::span<const int32_t> arrivals) override {
    cancelled.assign(arrivals.begin(), arrivals.end());
    const auto at = std::ranges::find(running_, call);
    ASSERT_NE(at, running_.end());
    if (ends_at_once) finish(Status::ok(), static_cast<size_t>(at - running_.begin()));
  }
  void discard(const Call& call, std::span<const int32_t> arrivals) override {
    discarded.assign(arrivals.begin(), arrivals.end());
    EXPECT_EQ(call.segments.front().input, nullptr);
    finished_.push_back({.id = call.id, .status = Status::ok()});
  }

  void finish(const Status& status = Status::ok(), size_t which = 0,
              std::shared_ptr<backend::DeviceEvent> event = nullptr) {
    ASSERT_LT(which, running_.size());
    finished_.push_back({.id = running_[which], .status = status, .how = "fake", .event = std::move(event)});
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(which));
  }

  std::vector<int64_t> started;  // elements of the first tensor of each call, in start order
  std::vector<uint64_t> orders;  // in start order
  bool ends_at_once = true;      // what is cancelled
  bool takes_devices = false;
  std::vector<void*> events;  // of all tensors, in start order
  std::vector<size_t> segments;
  std::vector<int32_t> cancelled, discarded;

 private:
  DType mine_;
  size_t room_;
  std::deque<backend::CallId> running_;
  std::vector<backend::Done> finished_;
};

struct FakeEvent final : backend::DeviceEvent {
  [[nodiscard]] Status make_stream_wait(void*) override { return Status::ok(); }
  [[nodiscard]] std::optional<Status> outcome() override {
    return has_happened ? std::optional(Status::ok()) : std::nullopt;
  }
  [[nodiscard]] std::optional<Status> wait(std::optional<Deadline>) override { return outcome(); }
  bool has_happened = false;
};

struct NoTrace final : TraceSink {};

// Rank 0 of two, with a backend for float32 and one for int32.
class OneRank : public testing::Test {
 protected:
  explicit OneRank(size_t room = 1) {
    std::vector<std::unique_ptr<Backend>> backends;
    for (const DType dtype : {DType::kFloat32, DType::kInt32}) {
      auto made = std::make_unique<FakeBackend>(dtype, room);
      (dtype == DType::kFloat32 ? floats_ : ints_) = made.get();
      backends.push_back(std::move(made));
    }
    table_ = std::make_unique<backend::BackendTable>(std::move(backends));
    dispatcher_ =
        std::make_unique<Dispatcher>(0, operations_, groups_, *table_, ready_streams_, trace_, counters_);
  }

  // A response of allreduces of `counts` elements each, submitted and then enqueued.
  int64_t submit(const std::string& name, int64_t count, DType dtype, Memory memory = {}) {
    std::vector<Tensor> tensors;
    Tensor& tensor = tensors.emplace_back();
    tensor.request.name = name;
    tensor.request.dtype = dtype;
    tensor.request.shape = {count};
    tensor.memory = memory;
    tensor.input = tensor.output = memory_.emplace_back(static_cast<size_t>(count) * 4).data();
    return operations_.submit(std::move(tensors)).value();
  }
  // The memory of the tensor that was submitted last.
  int64_t submit_again(const std::string& name, DType dtype) {
    std::vector<Tensor> tensors;
    Tensor& tensor = tensors.emplace_back();
    tensor.request.name = name;
    tensor.request.dtype = dtype;
    tensor.request.shape = {static_cast<int64_t>(memory_.back().size() / 4)};
    tensor.input = tensor.output = memory_.back().data();
    return operations_.submit(std::move(tensors)).value();
  }
  static control::Bucket bucket(std::vector<std::pair<std::string, int64_t>> entries, DType dtype) {
    control::Bucket made;
    made.dtype = dtype;
    for (auto& [name, count] : entries) made.entries.push_back({.name = name, .shape = {count}, .rows = {}});
    return made;
  }
  int64_t run(const std::string& name, int64_t count, DType dtype = DType::kFloat32) {
    const int64_t handle = submit(name, count, dtype);
    dispatcher_->enqueue(bucket({{name, count}}, dtype));
    return handle;
  }
  void plan(const std::string& name, int64_t count, int64_t number) {
    std::vector<std::optional<TensorRef>> tensors{operations_.lookup(0, name)};
    const auto planned = std::make_shared<const control::Bucket>(bucket({{name, count}}, DType::kFloat32));
    dispatcher_->enqueue_planned(
        {.bucket = planned, .number = number, .first_position = static_cast<size_t>(number)}, tensors);
  }
  void settle() {
    while (dispatcher_->progress()) {
    }
  }

  std::deque<std::vector<std::byte>> memory_;
  Operations operations_{[] {}};
  Groups groups_{1, 0, 2};
  NoTrace trace_;
  EngineCounters counters_;
  FakeBackend* floats_ = nullptr;
  FakeBackend* ints_ = nullptr;
  std::unique_ptr<backend::BackendTable> table_;
  ReadyStreams ready_streams_{nullptr};
  std::unique_ptr<Dispatcher> dispatcher_;
};

class OneRankWithRoom : public OneRank {
 protected:
  OneRankWithRoom() : OneRank(2) {}
};

}  // namespace rueda::runtime::dispatcher_test
