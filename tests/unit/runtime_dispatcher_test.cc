// One queue, several backends: what overlaps, what waits for what, and what becomes of failures.
#include "rueda/runtime/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>

namespace rueda::runtime {
namespace {

using backend::Backend;
using backend::Call;
using testing::ElementsAre;
using testing::IsEmpty;

// Runs calls until it is told that they are done.
class FakeBackend final : public Backend {
 public:
  FakeBackend(DType mine, size_t room) : mine_(mine), room_(room) {}

  [[nodiscard]] std::string_view name() const override { return "fake"; }
  [[nodiscard]] bool accepts(const Group&, const schedule::Spec& spec, const Memory& memory) const override {
    return spec.dtype == mine_ && memory.kind != MemoryKind::kDevice;
  }
  [[nodiscard]] bool can_take_back(const Group&, const schedule::Spec&) const override { return true; }
  [[nodiscard]] size_t room() const override { return room_ - running_.size(); }
  void start(const Call& call) override {
    ASSERT_GT(room(), 0u);
    running_.push_back(call.id);
    segments.push_back(call.segments.size());
    started.push_back(call.segments.empty() ? 0 : call.segments.front().count);
  }
  bool progress(std::vector<backend::Done>& done) override {
    for (backend::Done& each : finished_) done.push_back(std::move(each));
    return !std::exchange(finished_, {}).empty();
  }
  [[nodiscard]] bool is_idle() const override { return running_.empty() && finished_.empty(); }
  void abort(const Status&) override {}
  std::vector<int32_t> pause() override { return {1, 2}; }
  void take_back(std::span<const int32_t> arrivals) override {
    taken_back.assign(arrivals.begin(), arrivals.end());
    finish();
  }
  void drain(const Call& call, std::span<const int32_t> arrivals) override {
    drained.assign(arrivals.begin(), arrivals.end());
    EXPECT_EQ(call.segments.front().input, nullptr);
    finished_.push_back({.id = call.id, .status = Status::ok()});
  }

  void finish(const Status& status = Status::ok(), size_t which = 0) {
    ASSERT_LT(which, running_.size());
    finished_.push_back({.id = running_[which], .status = status, .how = "fake"});
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(which));
  }

  std::vector<int64_t> started;  // elements of the first tensor of each call, in start order
  std::vector<size_t> segments;
  std::vector<int32_t> taken_back, drained;

 private:
  DType mine_;
  size_t room_;
  std::deque<backend::CallId> running_;
  std::vector<backend::Done> finished_;
};

struct NoTrace final : TraceSink {
  void emit(const TraceEvent&) override {}
  [[nodiscard]] bool is_on() const override { return false; }
};

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
    dispatcher_ = std::make_unique<Dispatcher>(0, operations_, groups_, *table_, trace_, counters_);
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
  static control::Response response(std::vector<std::pair<std::string, int64_t>> entries, DType dtype) {
    control::Response made;
    made.dtype = dtype;
    for (auto& [name, count] : entries) made.entries.push_back({.name = name, .shape = {count}, .rows = {}});
    return made;
  }
  int64_t run(const std::string& name, int64_t count, DType dtype = DType::kFloat32) {
    const int64_t handle = submit(name, count, dtype);
    dispatcher_->enqueue(response({{name, count}}, dtype));
    return handle;
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
  std::unique_ptr<Dispatcher> dispatcher_;
};

TEST_F(OneRank, batches_of_different_backends_overlap_and_each_backend_keeps_the_order) {
  const int64_t first = run("f1", 1);
  run("f2", 2);
  const int64_t ints = run("i1", 11, DType::kInt32);
  run("f3", 3);
  run("i2", 12, DType::kInt32);
  settle();
  EXPECT_THAT(floats_->started, ElementsAre(1));
  EXPECT_THAT(ints_->started, ElementsAre(11)) << "it need not wait for the other backend";
  EXPECT_EQ(dispatcher_->backlog(), 5u);
  ints_->finish();
  settle();
  EXPECT_EQ(operations_.poll(ints), 1);
  EXPECT_EQ(operations_.poll(first), 0);
  EXPECT_THAT(ints_->started, ElementsAre(11, 12));
  for (int i = 0; i < 3; ++i) {
    floats_->finish();
    settle();
  }
  EXPECT_THAT(floats_->started, ElementsAre(1, 2, 3));
  ints_->finish();
  settle();
  EXPECT_TRUE(dispatcher_->is_idle());
}

class OneRankWithRoom : public OneRank {
 protected:
  OneRankWithRoom() : OneRank(2) {}
};

TEST_F(OneRankWithRoom, as_many_batches_run_as_the_backend_takes_and_may_end_in_any_order) {
  const int64_t first = run("f1", 1), second = run("f2", 2), third = run("f3", 3);
  settle();
  EXPECT_THAT(floats_->started, ElementsAre(1, 2));
  floats_->finish(Status::ok(), 1);
  settle();
  EXPECT_EQ(operations_.poll(first), 0);
  EXPECT_EQ(operations_.poll(second), 1);
  EXPECT_THAT(floats_->started, ElementsAre(1, 2, 3));
  floats_->finish();
  floats_->finish();
  settle();
  EXPECT_EQ(operations_.poll(first), 1);
  EXPECT_EQ(operations_.poll(third), 1);
}

TEST_F(OneRank, a_barrier_and_a_notice_wait_for_all_before_them_and_hold_up_all_behind) {
  run("f1", 1);
  control::Response added;
  added.kind = control::Response::Kind::kSetAdded;
  added.set_id = 3;
  added.set_ranks = {0};
  dispatcher_->enqueue(added);
  run("i1", 11, DType::kInt32);
  settle();
  EXPECT_THAT(ints_->started, IsEmpty());
  EXPECT_EQ(groups_.find(3), nullptr);
  floats_->finish();
  settle();
  EXPECT_NE(groups_.find(3), nullptr);
  EXPECT_THAT(ints_->started, ElementsAre(11));
}

TEST_F(OneRank, fused_tensors_go_to_the_backend_as_they_lie) {
  submit("a", 1, DType::kFloat32);
  submit("b", 2, DType::kFloat32);
  dispatcher_->enqueue(response({{"a", 1}, {"b", 2}}, DType::kFloat32));
  settle();
  EXPECT_THAT(floats_->segments, ElementsAre(2u));
}

TEST_F(OneRank, memory_that_no_backend_takes_fails_its_operation_alone) {
  const int64_t device = submit("d", 1, DType::kFloat32, {.kind = MemoryKind::kDevice, .device = 0});
  dispatcher_->enqueue(response({{"d", 1}}, DType::kFloat32));
  const int64_t host = run("f1", 1);
  settle();
  EXPECT_EQ(operations_.poll(device), 1);
  EXPECT_EQ(operations_.find(device)->status.code, Code::kUnsupported);
  EXPECT_TRUE(dispatcher_->failure().is_ok());
  floats_->finish();
  settle();
  EXPECT_TRUE(operations_.find(host)->status.is_ok());
}

TEST_F(OneRank, what_fails_here_alone_ends_the_epoch_and_starts_nothing_more) {
  const int64_t first = run("f1", 1);
  run("f2", 2);
  settle();
  floats_->finish({Code::kPeerLost, "rank 1 closed its connection"});
  settle();
  EXPECT_EQ(dispatcher_->failure().code, Code::kPeerLost);
  EXPECT_EQ(operations_.poll(first), 0) << "it ends with the epoch";
  EXPECT_THAT(floats_->started, ElementsAre(1));
}

TEST_F(OneRank, a_planned_batch_is_taken_back_and_its_operation_stays_open) {
  const int64_t handle = submit("f1", 1, DType::kFloat32);
  dispatcher_->enqueue_planned(
      std::make_shared<const control::Response>(response({{"f1", 1}}, DType::kFloat32)));
  settle();
  EXPECT_THAT(dispatcher_->pause(), ElementsAre(1, 2));
  const std::vector<int32_t> arrivals{0, 4};
  dispatcher_->take_back(arrivals);
  settle();
  EXPECT_EQ(floats_->taken_back, arrivals);
  EXPECT_EQ(operations_.poll(handle), 0);
  EXPECT_TRUE(dispatcher_->is_idle());
}

TEST_F(OneRank, what_others_started_in_vain_is_drained_without_tensors_of_this_rank) {
  const int64_t handle = submit("f1", 1, DType::kFloat32);
  dispatcher_->enqueue_drained(response({{"f1", 1}}, DType::kFloat32), {0, 4});
  settle();
  EXPECT_THAT(floats_->drained, ElementsAre(0, 4));
  EXPECT_EQ(operations_.poll(handle), 0);
  EXPECT_TRUE(dispatcher_->is_idle());
}

}  // namespace
}  // namespace rueda::runtime
