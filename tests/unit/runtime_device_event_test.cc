// Operations whose calls were launched on a device: who waits for what, with events that the test drives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "rueda/runtime/operations.h"

namespace rueda::runtime::device_event_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Happens when the test says so.
class TestEvent final : public backend::DeviceEvent {
 public:
  [[nodiscard]] Status make_stream_wait(void* stream) override {
    streams.push_back(stream);
    return refusal;
  }
  [[nodiscard]] std::optional<Status> outcome() override {
    return has_happened ? std::optional(how) : std::nullopt;
  }
  [[nodiscard]] std::optional<Status> wait(std::optional<Deadline> deadline) override {
    is_awaited = true;
    is_awaited.notify_all();
    if (!deadline) has_happened.wait(false);
    return outcome();
  }
  void happen(Status status = Status::ok()) {
    how = std::move(status);
    has_happened = true;
    has_happened.notify_all();
  }

  Status how, refusal;
  std::atomic<bool> has_happened{false}, is_awaited{false};
  std::vector<void*> streams;  // that were made to wait
};

class Launched : public testing::Test {
 protected:
  int64_t submit(std::initializer_list<const char*> names) {
    std::vector<Tensor> tensors;
    for (const char* name : names) tensors.emplace_back().request.name = name;
    return operations_.submit(std::move(tensors)).value();
  }
  void finish(const char* name, const std::shared_ptr<TestEvent>& event,
              const Status& status = Status::ok()) {
    operations_.finish(*operations_.lookup(0, name), status, event);
  }
  Status wait(int64_t handle) { return operations_.wait(handle, Deadline::after(0)); }
  Status wait_on_stream(int64_t handle) {
    return Operations::StreamWaits(operations_, std::span(&handle, 1), stream_).wait(0, Deadline::after(0));
  }

  Operations operations_{[] {}};
  std::shared_ptr<TestEvent> event_ = std::make_shared<TestEvent>();
  std::shared_ptr<TestEvent> other_ = std::make_shared<TestEvent>();
  void* stream_ = &operations_;  // nothing looks at it
};

TEST_F(Launched, a_launch_is_the_end_for_streams_and_callbacks_but_not_for_the_host) {
  const int64_t handle = submit({"grad"});
  int calls = 0;
  const Callback count{.function = [](void* calls) { ++*static_cast<int*>(calls); }, .argument = &calls};
  ASSERT_TRUE(operations_.on_done(handle, count).is_ok());
  EXPECT_EQ(wait_on_stream(handle).code, Code::kTimeout) << "it is not launched";
  finish("grad", event_);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(operations_.is_empty()) << "its name may be used again";
  EXPECT_EQ(operations_.poll(handle), 0);
  EXPECT_EQ(wait(handle).code, Code::kTimeout);
  EXPECT_THAT(wait(handle).why, HasSubstr("Operation grad is still running on its device"));
  EXPECT_TRUE(wait_on_stream(handle).is_ok());
  EXPECT_THAT(event_->streams, ElementsAre(stream_));
  event_->happen();
  EXPECT_EQ(operations_.poll(handle), 1);
  EXPECT_TRUE(wait(handle).is_ok());
}

TEST_F(Launched, a_host_wait_ends_with_the_event) {
  const int64_t handle = submit({"grad"});
  finish("grad", event_);
  std::thread waiter([&] { EXPECT_TRUE(operations_.wait(handle, std::nullopt).is_ok()); });
  event_->is_awaited.wait(false);
  event_->happen();
  waiter.join();
}

TEST_F(Launched, what_fails_on_the_device_is_the_status_of_the_host_wait) {
  const int64_t handle = submit({"grad"});
  finish("grad", event_);
  EXPECT_TRUE(operations_.find(handle)->outcome().is_ok());
  event_->happen({Code::kUnavailable, "the device fell off the bus."});
  EXPECT_EQ(operations_.poll(handle), 1);
  const Status failed = wait(handle);
  EXPECT_EQ(failed.code, Code::kUnavailable);
  EXPECT_EQ(failed.why, "Operation grad failed on its device: the device fell off the bus.");
  EXPECT_EQ(operations_.find(handle)->outcome().why, failed.why);
}

TEST_F(Launched, a_group_has_the_events_of_all_its_batches_each_once) {
  const int64_t handle = submit({"a", "b", "c"});
  finish("a", event_);
  finish("b", event_);
  EXPECT_EQ(operations_.poll(handle), 0);
  finish("c", other_);
  EXPECT_TRUE(wait_on_stream(handle).is_ok());
  EXPECT_THAT(event_->streams, ElementsAre(stream_));
  EXPECT_THAT(other_->streams, ElementsAre(stream_));
  event_->happen();
  EXPECT_EQ(operations_.poll(handle), 0);
  EXPECT_EQ(wait(handle).code, Code::kTimeout);
  other_->happen();
  EXPECT_TRUE(wait(handle).is_ok());
}

TEST_F(Launched, a_failed_group_still_waits_for_what_was_launched_of_it) {
  const int64_t handle = submit({"a", "b"});
  finish("a", event_);
  finish("b", nullptr, {Code::kMismatch, "ranks disagree about b"});
  EXPECT_EQ(wait_on_stream(handle).code, Code::kMismatch);
  EXPECT_THAT(event_->streams, ElementsAre(stream_)) << "the device uses the memory of a";
  EXPECT_EQ(operations_.poll(handle), 0);
  EXPECT_EQ(wait(handle).code, Code::kTimeout);
  event_->happen();
  EXPECT_EQ(wait(handle).why, "ranks disagree about b");
}

TEST_F(Launched, a_stream_that_the_device_refuses_fails_its_wait_alone) {
  const int64_t handle = submit({"grad"});
  event_->refusal = {Code::kInvalidArgument, "this is no stream."};
  finish("grad", event_);
  EXPECT_EQ(wait_on_stream(handle).why, "The stream cannot wait for operation grad: this is no stream.");
  event_->happen();
  EXPECT_TRUE(wait(handle).is_ok());
}

TEST_F(Launched, a_callback_may_let_a_stream_wait) {
  const int64_t handle = submit({"grad"});
  std::function<void()> wait = [&] { EXPECT_TRUE(wait_on_stream(handle).is_ok()); };
  const auto call = [](void* what) { (*static_cast<std::function<void()>*>(what))(); };
  ASSERT_TRUE(operations_.on_done(handle, {.function = call, .argument = &wait}).is_ok());
  finish("grad", event_);
  EXPECT_THAT(event_->streams, ElementsAre(stream_));
}

TEST_F(Launched, the_end_of_an_epoch_leaves_it_to_the_event_how_a_launched_operation_ends) {
  const int64_t handle = submit({"grad"});
  finish("grad", event_);
  operations_.close({Code::kPeerLost, "rank 1 died"});
  EXPECT_EQ(wait(handle).code, Code::kTimeout);
  event_->happen();
  EXPECT_TRUE(wait(handle).is_ok());
}

TEST_F(Launched, in_host_memory_waiting_on_a_stream_is_waiting_for_the_operation) {
  const int64_t handle = submit({"grad"});
  const Status late = wait_on_stream(handle);
  EXPECT_EQ(late.code, Code::kTimeout);
  EXPECT_THAT(late.why, HasSubstr("Operation grad is still pending"));
  finish("grad", nullptr);
  EXPECT_THAT(operations_.find(handle)->events, IsEmpty());
  EXPECT_TRUE(wait_on_stream(handle).is_ok());
  const int64_t failing = submit({"bias"});
  finish("bias", nullptr, {Code::kMismatch, "ranks disagree about bias"});
  EXPECT_EQ(wait_on_stream(failing).why, "ranks disagree about bias");
  EXPECT_EQ(wait_on_stream(99).code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace rueda::runtime::device_event_test
