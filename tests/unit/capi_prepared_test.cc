// Prepared operations of the C ABI, in a job of one rank: what is refused, and what runs again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "rueda/rueda.hpp"

namespace rueda::capi_prepared_test {
namespace {

using testing::Each;
using testing::HasSubstr;

class Prepared : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(rueda_init(nullptr), RUEDA_OK) << rueda_last_error(); }
  void TearDown() override { rueda_shutdown(); }

  static rueda_request request(const char* name, const int64_t& count,
                               rueda_collective what = RUEDA_ALLREDUCE) {
    rueda_request made{};
    made.struct_size = sizeof(made);
    made.what = what;
    made.dtype = RUEDA_FLOAT32;
    made.op = RUEDA_SUM;
    made.name = name;
    made.root_rank = 0;
    made.prescale = 2.0;
    made.postscale = 1.0;
    made.ndim = 1;
    made.device = -1;
    made.shape = &count;
    return made;
  }
  static int64_t prepare(const char* name, int64_t count) {
    const rueda_request made = request(name, count);
    int64_t number = 0;
    EXPECT_EQ(rueda_prepare(&made, &number), RUEDA_OK) << rueda_last_error();
    return number;
  }
  static rueda_start_item item(int64_t number, std::vector<float>& data) {
    return {number, data.data(), data.data(), nullptr, -1};
  }
  static void finish(const rueda_start_item& one) {
    EXPECT_EQ(rueda_wait(one.handle, -1), RUEDA_OK) << rueda_error(one.handle);
    rueda_release(one.handle);
  }
};

TEST_F(Prepared, are_awaited_and_released_by_one_call_up_to_the_first_that_fails) {
  constexpr size_t kTensors = 5;
  std::vector<std::vector<float>> data(kTensors, std::vector<float>(3, 1));
  std::vector<int64_t> handles;
  for (size_t i = 0; i < kTensors; ++i) {
    rueda_start_item one = item(prepare(("t" + std::to_string(i)).c_str(), 3), data[i]);
    ASSERT_EQ(rueda_start(&one, 1), RUEDA_OK);
    handles.push_back(one.handle);
  }
  int32_t ended = -1;
  EXPECT_EQ(rueda_wait_all_on_stream(handles.data(), kTensors, nullptr, -1, &ended), RUEDA_OK);
  EXPECT_EQ(ended, kTensors);
  for (const auto& values : data) EXPECT_THAT(values, Each(2.0F));
  rueda_release(handles[3]);
  EXPECT_EQ(rueda_wait_all_on_stream(handles.data(), kTensors, nullptr, -1, &ended), RUEDA_INVALID_ARGUMENT);
  EXPECT_EQ(ended, 3) << "those before the unknown one have ended";
  EXPECT_THAT(rueda_last_error(), HasSubstr("Handle " + std::to_string(handles[3])));
  rueda_release_all(handles.data(), kTensors);
  for (const int64_t handle : handles) EXPECT_EQ(rueda_poll(handle), -1);
  EXPECT_EQ(rueda_wait_all_on_stream(handles.data(), 0, nullptr, -1, &ended), RUEDA_OK);
  EXPECT_EQ(rueda_wait_all_on_stream(nullptr, 1, nullptr, -1, &ended), RUEDA_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_wait_all_on_stream(handles.data(), 1, nullptr, -1, nullptr), RUEDA_INVALID_ARGUMENT);
}

TEST_F(Prepared, run_again_and_again_several_at_a_time_each_as_an_operation_of_its_own) {
  constexpr size_t kTensors = 20;
  std::vector<std::vector<float>> data(kTensors, std::vector<float>(3, 1));
  std::vector<rueda_start_item> items;
  for (size_t i = 0; i < kTensors; ++i)
    items.push_back(item(prepare(("t" + std::to_string(i)).c_str(), 3), data[i]));
  for (int step = 1; step <= 10; ++step) {
    ASSERT_EQ(rueda_start(items.data(), kTensors), RUEDA_OK) << rueda_last_error();
    for (const rueda_start_item& one : items) finish(one);
    for (const std::vector<float>& each : data) EXPECT_THAT(each, Each(static_cast<float>(1 << step)));
  }
}

TEST_F(Prepared, are_refused_while_they_run_and_may_start_before_their_handle_is_released) {
  std::vector<float> data(2, 1), other(2, 1);
  rueda_start_item one = item(prepare("x", 2), data), again = item(one.prepared, other);
  // An engine thread that is awake may be quick, so this is repeated until the second start finds the first.
  bool was_refused = false;
  for (int attempt = 0; attempt < 1000 && !was_refused; ++attempt) {
    std::array<rueda_start_item, 2> both{one, again};
    was_refused = rueda_start(both.data(), 2) == RUEDA_DUPLICATE_NAME;
    one.handle = both[0].handle;
    again.handle = both[1].handle;
    if (was_refused) {
      EXPECT_THAT(rueda_last_error(),
                  HasSubstr("same name as another tensor that is currently being processed: x"));
      EXPECT_EQ(again.handle, 0);
    } else {
      finish(again);
    }
    finish(one);
  }
  EXPECT_TRUE(was_refused);
  ASSERT_EQ(rueda_start(&one, 1), RUEDA_OK);
  ASSERT_EQ(rueda_wait(one.handle, -1), RUEDA_OK);
  ASSERT_EQ(rueda_start(&again, 1), RUEDA_OK) << rueda_last_error();
  finish(again);
  EXPECT_EQ(rueda_poll(one.handle), 1) << "the first run keeps its result";
  rueda_release(one.handle);
}

TEST_F(Prepared, belong_to_their_epoch) {
  std::vector<float> data(2, 1);
  rueda_start_item one = item(prepare("x", 2), data);
  rueda_shutdown();
  EXPECT_EQ(rueda_start(&one, 1), RUEDA_NOT_INITIALIZED);
  const int64_t count = 2;
  const rueda_request made = request("x", count);
  int64_t number = 0;
  EXPECT_EQ(rueda_prepare(&made, &number), RUEDA_NOT_INITIALIZED);
  rueda_forget(one.prepared);
  ASSERT_EQ(rueda_init(nullptr), RUEDA_OK);
  EXPECT_NE(prepare("y", 2), one.prepared) << "no number is used twice";
  EXPECT_EQ(rueda_start(&one, 1), RUEDA_INVALID_ARGUMENT);
  EXPECT_THAT(rueda_last_error(), HasSubstr("prepared before the last shutdown. Prepare it again."));
  EXPECT_EQ(data[0], 1);
}

TEST_F(Prepared, start_until_one_is_refused) {
  std::vector<float> a(2, 1), b(2, 1), c(2, 1);
  std::array<rueda_start_item, 3> items{item(prepare("a", 2), a), item(12345, b), item(prepare("c", 2), c)};
  EXPECT_EQ(rueda_start(items.data(), 3), RUEDA_INVALID_ARGUMENT);
  EXPECT_THAT(rueda_last_error(), HasSubstr("Number 12345 names no prepared operation"));
  EXPECT_EQ(items[1].handle, 0);
  EXPECT_EQ(items[2].handle, 0);
  finish(items[0]);
  EXPECT_EQ(a[0], 2);
  EXPECT_EQ(c[0], 1);
}

TEST_F(Prepared, refuse_what_cannot_run) {
  const int64_t count = 2, negative = -1;
  int64_t number = 0;
  const rueda_request join = request("j", count, RUEDA_JOIN), shape = request("s", negative);
  EXPECT_EQ(rueda_prepare(&join, &number), RUEDA_INVALID_ARGUMENT);
  EXPECT_THAT(rueda_last_error(), HasSubstr("a join cannot be prepared"));
  EXPECT_EQ(rueda_prepare(&shape, &number), RUEDA_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_prepare(nullptr, &number), RUEDA_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_prepare(&join, nullptr), RUEDA_INVALID_ARGUMENT);
  rueda_request unknown_set = request("p", count);
  unknown_set.process_set = 9;
  EXPECT_EQ(rueda_prepare(&unknown_set, &number), RUEDA_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_start(nullptr, 1), RUEDA_INVALID_ARGUMENT);

  std::vector<float> data(4, 1);
  rueda_start_item one{prepare("x", 2), nullptr, data.data(), nullptr, 0};
  EXPECT_EQ(rueda_start(&one, 0), RUEDA_INVALID_ARGUMENT);
  EXPECT_EQ(rueda_start(&one, 1), RUEDA_INVALID_ARGUMENT);
  EXPECT_THAT(rueda_last_error(), HasSubstr("The input of tensor x is null"));
  one.input = data.data() + 1;
  EXPECT_EQ(rueda_start(&one, 1), RUEDA_INVALID_ARGUMENT);
  EXPECT_THAT(rueda_last_error(), HasSubstr("overlaps its input in part"));
  rueda_forget(one.prepared);
  one.input = one.output;
  EXPECT_EQ(rueda_start(&one, 1), RUEDA_INVALID_ARGUMENT);
  EXPECT_THAT(rueda_last_error(), HasSubstr("it was forgotten"));
}

TEST_F(Prepared, can_be_forgotten_while_they_run) {
  std::vector<float> data(2, 1);
  for (int step = 0; step < 100; ++step) {
    rueda_start_item one = item(prepare("x", 2), data);
    ASSERT_EQ(rueda_start(&one, 1), RUEDA_OK) << rueda_last_error();
    rueda_forget(one.prepared);
    finish(one);
  }
}

TEST_F(Prepared, start_from_two_threads_once_at_a_time) {
  std::atomic<int> started{0};
  const int64_t shared = prepare("shared", 2);
  const auto work = [&](const char* name) {
    std::vector<float> data(2, 1), mine(2, 1);
    rueda_start_item own = item(prepare(name, 2), mine), both = item(shared, data);
    for (int step = 0; step < 500; ++step) {
      ASSERT_EQ(rueda_start(&own, 1), RUEDA_OK) << rueda_last_error();
      const int code = rueda_start(&both, 1);
      ASSERT_TRUE(code == RUEDA_OK || code == RUEDA_DUPLICATE_NAME) << rueda_last_error();
      finish(own);
      if (code != RUEDA_OK) continue;
      ++started;
      finish(both);
    }
  };
  std::thread first(work, "first"), second(work, "second");
  first.join();
  second.join();
  EXPECT_GT(started, 0);
}

TEST_F(Prepared, have_results_of_their_own_where_the_engine_allocates_them) {
  const int64_t count = 2;
  const rueda_request made = request("gathered", count, RUEDA_ALLGATHER);
  int64_t number = 0;
  ASSERT_EQ(rueda_prepare(&made, &number), RUEDA_OK) << rueda_last_error();
  std::vector<float> data(2, 1);
  rueda_start_item runs[2] = {{number, data.data(), nullptr, nullptr, 0},
                              {number, data.data(), nullptr, nullptr, 0}};
  rueda_result_info info[2] = {};
  for (int run = 0; run < 2; ++run) {
    data.assign(2, static_cast<float>(run));
    ASSERT_EQ(rueda_start(&runs[run], 1), RUEDA_OK) << rueda_last_error();
    ASSERT_EQ(rueda_wait(runs[run].handle, -1), RUEDA_OK);
    info[run].struct_size = sizeof(rueda_result_info);
    ASSERT_EQ(rueda_result(runs[run].handle, 0, &info[run]), RUEDA_OK);
  }
  EXPECT_EQ(static_cast<float*>(info[0].data)[1], 0);
  EXPECT_EQ(static_cast<float*>(info[1].data)[1], 1);
  for (const rueda_start_item& run : runs) rueda_release(run.handle);
}

TEST_F(Prepared, in_cpp_refuse_another_length) {
  auto made = rueda::PreparedAllreduce<float>::make(3, "cpp", {.op = rueda::Op::kSum});
  ASSERT_TRUE(made.ok());
  std::vector<float> data(3, 2), longer(4, 2);
  for (int step = 0; step < 3; ++step) {
    auto handle = made.value().start(data);
    ASSERT_TRUE(handle.ok());
    EXPECT_TRUE(handle.value().wait().ok());
  }
  const auto refused = made.value().start(longer);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.outcome().why, HasSubstr("An allreduce of 3 elements was prepared, but 4 are given"));
}

}  // namespace
}  // namespace rueda::capi_prepared_test
