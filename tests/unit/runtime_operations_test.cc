#include "rueda/runtime/operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace rueda::runtime::operations_test {
namespace {

using testing::HasSubstr;

std::vector<Tensor> named(std::initializer_list<const char*> names, int32_t process_set = 0) {
  std::vector<Tensor> tensors;
  for (const char* name : names) {
    tensors.emplace_back().request.name = name;
    tensors.back().request.process_set = process_set;
  }
  return tensors;
}

TEST(Operations, refuse_a_name_in_flight_and_free_it_when_done) {
  Operations operations([] {});
  const int64_t first = operations.submit(named({"x"})).value();
  const Status refused = operations.submit(named({"x"})).status();
  EXPECT_EQ(refused.code, Code::kDuplicateName);
  EXPECT_THAT(refused.why,
              HasSubstr("with the same name as another tensor that is currently being processed"));
  EXPECT_TRUE(operations.submit(named({"x"}, 1)).is_ok()) << "another process set is another name space";
  operations.finish(*operations.lookup(0, "x"), Status::ok());
  EXPECT_EQ(operations.poll(first), 1);
  EXPECT_TRUE(operations.submit(named({"x"})).is_ok());
}

TEST(Operations, register_nothing_of_a_group_that_is_refused) {
  Operations operations([] {});
  ASSERT_TRUE(operations.submit(named({"b"})).is_ok());
  EXPECT_FALSE(operations.submit(named({"a", "b"})).is_ok());
  EXPECT_FALSE(operations.lookup(0, "a").has_value());
  EXPECT_TRUE(operations.lookup(0, "b").has_value()) << "the earlier operation is untouched";
  std::vector<std::shared_ptr<Operation>> taken;
  operations.take_submitted(taken);
  EXPECT_EQ(taken.size(), 1u);
}

TEST(Operations, a_change_of_process_sets_is_in_flight_under_its_name_and_has_no_tensor) {
  Operations operations([] {});
  const control::SetChange change{.name = "add", .what = control::AddSet{{0}}};
  const int64_t handle = operations.submit(change).value();
  EXPECT_EQ(operations.submit(change).status().code, Code::kDuplicateName);
  EXPECT_EQ(operations.submit(named({"add"})).status().code, Code::kDuplicateName);
  const std::optional<TensorRef> ref = operations.lookup(0, "add");
  ASSERT_TRUE(ref.has_value());
  EXPECT_FALSE(ref->has_tensor());
  EXPECT_THAT(operations.wait(handle, Deadline::after(0)).why, HasSubstr("Operation add is still pending"));
  operations.finish(*ref, Status::ok());
  EXPECT_EQ(operations.poll(handle), 1);
  EXPECT_TRUE(operations.is_empty());
}

TEST(Operations, number_handles_from_one_and_refused_calls_consume_none) {
  Operations operations([] {});
  EXPECT_EQ(operations.submit(named({"a"})).value(), 1);
  EXPECT_FALSE(operations.submit(named({"a"})).is_ok());
  EXPECT_EQ(operations.submit(named({"b"})).value(), 2);
}

TEST(Operations, call_back_once_when_done_failed_or_closed) {
  Operations operations([] {});
  int calls = 0;
  const Callback count{.function = [](void* calls) { ++*static_cast<int*>(calls); }, .argument = &calls};
  const int64_t handle = operations.submit(named({"a"})).value();
  ASSERT_TRUE(operations.on_done(handle, count).is_ok());
  operations.release(handle);  // the callback still comes
  EXPECT_EQ(calls, 0);
  operations.finish(*operations.lookup(0, "a"), Status::ok());
  EXPECT_EQ(calls, 1);
  const int64_t other = operations.submit(named({"b"})).value();
  ASSERT_TRUE(operations.on_done(other, count).is_ok());
  operations.close({Code::kPeerLost, "gone"});
  EXPECT_EQ(calls, 2);
  ASSERT_TRUE(operations.on_done(other, count).is_ok());
  EXPECT_EQ(calls, 3) << "it is done already";
  EXPECT_EQ(operations.on_done(99, count).code, Code::kInvalidArgument);
}

TEST(Operations, complete_a_group_with_its_last_member_and_its_first_failure) {
  Operations operations([] {});
  const int64_t handle = operations.submit(named({"a", "b"})).value();
  operations.finish(*operations.lookup(0, "a"), {Code::kMismatch, "first"});
  EXPECT_EQ(operations.poll(handle), 0);
  operations.finish(*operations.lookup(0, "b"), {Code::kMismatch, "second"});
  EXPECT_EQ(operations.poll(handle), 1);
  EXPECT_EQ(operations.wait(handle, std::nullopt).why, "first");
}

TEST(Operations, close_fails_everything_in_flight_and_later) {
  Operations operations([] {});
  const int64_t handle = operations.submit(named({"a"})).value();
  std::thread waiter([&] { EXPECT_EQ(operations.wait(handle, std::nullopt).code, Code::kPeerLost); });
  operations.close({Code::kPeerLost, "rank 1 died"});
  waiter.join();
  EXPECT_EQ(operations.submit(named({"b"})).status().code, Code::kPeerLost);
}

TEST(Operations, wait_gives_up_at_its_deadline_and_names_the_tensor) {
  Operations operations([] {});
  const int64_t handle = operations.submit(named({"slow"})).value();
  const Status status = operations.wait(handle, Deadline::after(kMillisecond));
  EXPECT_EQ(status.code, Code::kTimeout);
  EXPECT_THAT(status.why, HasSubstr("slow"));
}

TEST(Operations, forget_a_released_handle_but_let_it_finish) {
  Operations operations([] {});
  const int64_t handle = operations.submit(named({"a"})).value();
  operations.release(handle);
  EXPECT_EQ(operations.poll(handle), -1);
  ASSERT_TRUE(operations.lookup(0, "a").has_value());
  operations.finish(*operations.lookup(0, "a"), Status::ok());
  EXPECT_FALSE(operations.lookup(0, "a").has_value());
}

}  // namespace
}  // namespace rueda::runtime::operations_test
