// Which operations in flight share memory, and what has to wait for what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "rueda/runtime/operations.h"

namespace rueda::runtime::memory_in_use_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Turn = Operations::Turn;

struct FakeEvent final : backend::DeviceEvent {
  [[nodiscard]] Status make_stream_wait(void*) override { return Status::ok(); }
  [[nodiscard]] std::optional<Status> outcome() override {
    ++questions;
    return has_happened ? std::optional(Status::ok()) : std::nullopt;
  }
  [[nodiscard]] std::optional<Status> wait(std::optional<Deadline>) override { return outcome(); }
  bool has_happened = false;
  int questions = 0;
};

class SharedTensors : public testing::Test {
 protected:
  struct View {
    size_t begin = 0, count = 0;
  };
  static constexpr int kNowhere = -1;

  Tensor tensor(const std::string& name, View input, int output_begin) {
    Tensor made;
    made.request.name = name;
    made.request.shape = {static_cast<int64_t>(input.count)};
    made.input = memory_.data() + input.begin;
    if (output_begin != kNowhere) made.output = memory_.data() + output_begin;
    return made;
  }
  // In place if no output is given.
  TensorRef submit(const std::string& name, View input, std::optional<int> output_begin = {}) {
    std::vector<Tensor> one;
    one.push_back(tensor(name, input, output_begin.value_or(static_cast<int>(input.begin))));
    handles_.push_back(operations_.submit(std::move(one)).value());
    return *operations_.lookup(0, name);
  }
  TensorRef submit_in(int32_t process_set, const std::string& name, View view) {
    std::vector<Tensor> one;
    one.push_back(tensor(name, view, static_cast<int>(view.begin)));
    one.back().request.process_set = process_set;
    handles_.push_back(operations_.submit(std::move(one)).value());
    return *operations_.lookup(process_set, name);
  }
  static std::vector<std::string> named_by(const TensorRef& ref) {
    std::vector<std::string> names;
    for (const control::NameInSet& one : ref.tensor().request.after)
      names.push_back(std::to_string(one.process_set) + " " + one.name);
    return names;
  }
  static bool is_told(const TensorRef& ref) { return ref.tensor().request.shares_memory; }

  std::vector<float> memory_ = std::vector<float>(1000);
  std::vector<int64_t> handles_;
  Operations operations_{[] {}};
};

TEST_F(SharedTensors, only_the_later_of_two_says_so_and_both_are_marked) {
  const TensorRef first = submit("first", {0, 100}), apart = submit("apart", {100, 100});
  const TensorRef second = submit("second", {99, 1});
  EXPECT_FALSE(is_told(first));
  EXPECT_FALSE(is_told(apart));
  EXPECT_TRUE(is_told(second));
  EXPECT_TRUE(first.operation->shares_memory && second.operation->shares_memory);
  EXPECT_FALSE(apart.operation->shares_memory);
}

TEST_F(SharedTensors, the_members_of_a_group_are_compared_too) {
  std::vector<Tensor> group;
  group.push_back(tensor("a", {0, 10}, 0));
  group.push_back(tensor("b", {10, 10}, 10));
  group.push_back(tensor("c", {0, 10}, 0));
  ASSERT_TRUE(operations_.submit(std::move(group)).is_ok());
  EXPECT_FALSE(is_told(*operations_.lookup(0, "a")));
  EXPECT_FALSE(is_told(*operations_.lookup(0, "b")));
  EXPECT_TRUE(is_told(*operations_.lookup(0, "c")));
}

TEST_F(SharedTensors, inputs_that_are_only_read_may_be_shared) {
  submit("first", {0, 100}, 200);
  EXPECT_FALSE(is_told(submit("second", {0, 100}, 300)));
  EXPECT_FALSE(is_told(submit("gather", {0, 100}, kNowhere)));
  EXPECT_TRUE(is_told(submit("reads what is written", {250, 10}, 500)));
  EXPECT_TRUE(is_told(submit("writes what is read", {600, 10}, 50)));
}

TEST_F(SharedTensors, the_root_of_a_broadcast_only_reads) {
  for (const char* name : {"to one", "to another"}) {
    std::vector<Tensor> one;
    one.push_back(tensor(name, {0, 100}, 0));
    one.back().is_only_read = true;
    ASSERT_TRUE(operations_.submit(std::move(one)).is_ok());
    EXPECT_FALSE(is_told(*operations_.lookup(0, name)));
  }
  EXPECT_TRUE(is_told(submit("writes it", {0, 100})));
}

TEST_F(SharedTensors, the_input_of_an_allgather_may_be_a_part_of_its_output) {
  Tensor gather = tensor("gather", {10, 10}, 0);
  gather.request.what = Collective::kAllgather;
  gather.output_bytes = 40 * sizeof(float);
  std::vector<Tensor> one;
  one.push_back(std::move(gather));
  ASSERT_TRUE(operations_.submit(std::move(one)).is_ok());
  const TensorRef ref = *operations_.lookup(0, "gather");
  EXPECT_FALSE(ref.operation->shares_memory);
  EXPECT_TRUE(is_told(submit("its end", {39, 1})));
  EXPECT_FALSE(is_told(submit("behind it", {40, 10})));
  operations_.finish(ref, Status::ok());
  EXPECT_FALSE(is_told(submit("later", {20, 10})));
}

TEST_F(SharedTensors, empty_tensors_share_nothing) {
  submit("first", {0, 100});
  EXPECT_FALSE(is_told(submit("empty", {50, 0})));
}

TEST_F(SharedTensors, those_of_other_process_sets_that_come_before_are_named) {
  EXPECT_THAT(named_by(submit_in(0, "a", {0, 100})), IsEmpty());
  submit_in(0, "apart", {500, 100});
  EXPECT_THAT(named_by(submit_in(0, "same set", {50, 10})), IsEmpty());
  EXPECT_THAT(named_by(submit_in(1, "b", {90, 100})), ElementsAre("0 a"));
  EXPECT_THAT(named_by(submit_in(2, "c", {80, 40})), ElementsAre("0 a", "1 b"));
  EXPECT_THAT(named_by(submit_in(2, "a", {180, 10})), ElementsAre("1 b"));
}

TEST_F(SharedTensors, what_reads_and_writes_the_memory_of_another_names_it_once) {
  submit_in(1, "a", {0, 300});
  EXPECT_THAT(named_by(submit("both", {0, 100}, 200)), ElementsAre("1 a"));
  EXPECT_THAT(named_by(submit_in(2, "last", {0, 300})), ElementsAre("0 both", "1 a"));
}

// It has named them itself.
TEST_F(SharedTensors, what_comes_before_one_that_writes_all_the_memory_is_not_named) {
  submit_in(1, "a", {0, 100});
  submit_in(2, "b", {100, 100});
  EXPECT_THAT(named_by(submit_in(0, "all", {0, 200})), ElementsAre("1 a", "2 b"));
  EXPECT_THAT(named_by(submit_in(1, "next", {10, 100})), ElementsAre("0 all"));
  EXPECT_THAT(named_by(submit_in(0, "same set", {0, 200})), ElementsAre("1 next"));
  submit("reader", {10, 20}, 700);
  EXPECT_THAT(named_by(submit_in(3, "writer", {10, 20})), ElementsAre("0 reader", "0 same set"));
}

TEST_F(SharedTensors, what_was_launched_or_has_ended_is_not_named) {
  operations_.finish(submit_in(1, "launched", {0, 100}), Status::ok(), std::make_shared<FakeEvent>());
  operations_.finish(submit_in(1, "ended", {0, 100}), Status::ok());
  EXPECT_THAT(named_by(submit_in(2, "next", {0, 100})), IsEmpty());
}

TEST_F(SharedTensors, what_has_ended_or_was_refused_uses_no_memory) {
  const TensorRef first = submit("first", {0, 100});
  std::vector<Tensor> same_name;
  same_name.push_back(tensor("first", {200, 100}, 200));
  EXPECT_FALSE(operations_.submit(std::move(same_name)).is_ok());
  operations_.finish(first, Status::ok());
  EXPECT_FALSE(is_told(submit("second", {0, 100})));
  EXPECT_FALSE(is_told(submit("third", {200, 100})));
}

TEST_F(SharedTensors, a_call_waits_for_the_one_that_has_started_and_not_for_one_that_has_not) {
  const TensorRef first = submit("first", {0, 100}), second = submit("second", {50, 100});
  EXPECT_EQ(operations_.turn_of(second), Turn::kNow) << "the global order may put it first";
  first.tensor().is_started = true;
  EXPECT_EQ(operations_.turn_of(second), Turn::kAfterCall);
  first.tensor().is_started = false;  // cancelled
  second.tensor().is_started = true;
  EXPECT_EQ(operations_.turn_of(first), Turn::kAfterCall);
  operations_.finish(second, Status::ok());
  EXPECT_EQ(operations_.turn_of(first), Turn::kNow);
}

TEST_F(SharedTensors, a_launched_call_is_waited_for_until_its_event_has_happened) {
  const auto event = std::make_shared<FakeEvent>();
  const TensorRef first = submit("first", {0, 100}), second = submit("second", {0, 100});
  first.tensor().is_started = true;
  operations_.finish(first, Status::ok(), event);
  EXPECT_EQ(operations_.turn_of(second), Turn::kAfterDevice);
  ASSERT_TRUE(Operations::StreamWaits(operations_, std::span(&handles_[0], 1), nullptr)
                  .wait(0, std::nullopt)
                  .is_ok());
  EXPECT_EQ(operations_.turn_of(second), Turn::kAfterDevice) << "it was submitted before the stream waited";
  const TensorRef third = submit("third", {0, 10});
  event->has_happened = true;
  EXPECT_EQ(operations_.turn_of(second), Turn::kNow);
  EXPECT_TRUE(is_told(third)) << "because of the second";
}

TEST_F(SharedTensors, after_a_wait_on_a_stream_the_order_of_the_stream_is_enough) {
  const auto event = std::make_shared<FakeEvent>();
  operations_.finish(submit("first", {0, 100}), Status::ok(), event);
  const TensorRef before = submit("before the wait", {0, 100});
  EXPECT_FALSE(is_told(before)) << "no transfer can contain both";
  EXPECT_EQ(operations_.turn_of(before), Turn::kAfterDevice);
  operations_.finish(before, Status::ok(), event);
  operations_.finish(submit("other", {200, 100}), Status::ok(), event);
  ASSERT_TRUE(Operations::StreamWaits(operations_, std::span(&handles_.back(), 1), nullptr)
                  .wait(0, std::nullopt)
                  .is_ok());
  event->questions = 0;
  EXPECT_EQ(operations_.turn_of(submit("after the wait", {200, 100})), Turn::kNow);
  EXPECT_EQ(event->questions, 0) << "the host does not wait for the device";
}

TEST_F(SharedTensors, launched_calls_that_nobody_waits_for_are_forgotten_once_they_have_ended) {
  const auto event = std::make_shared<FakeEvent>();
  event->has_happened = true;
  std::vector<float> many(20'000);
  for (size_t i = 0; i < many.size(); ++i) {
    std::vector<Tensor> one;
    one.push_back(tensor("t", {0, 1}, 0));
    one.back().input = one.back().output = &many[i];
    const int64_t handle = operations_.submit(std::move(one)).value();
    operations_.finish(*operations_.lookup(0, "t"), Status::ok(), event);
    operations_.release(handle);
    std::vector<std::shared_ptr<Operation>> taken;
    operations_.take_submitted(taken);  // as the engine does
  }
  EXPECT_LT(event.use_count(), 10'000);
}

TEST_F(SharedTensors, the_end_of_the_epoch_forgets_everything) {
  const auto event = std::make_shared<FakeEvent>();
  operations_.finish(submit("first", {0, 100}), Status::ok(), event);
  submit("second", {0, 100});
  handles_.clear();
  operations_.close({Code::kPeerLost, "rank 1 died"});
  operations_.release(1);
  EXPECT_EQ(event.use_count(), 1) << "events must not outlive their backend";
}

}  // namespace
}  // namespace rueda::runtime::memory_in_use_test
