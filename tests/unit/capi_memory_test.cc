// Where a tensor's bytes are, as the C ABI takes it: in a job of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "rueda/rueda.h"

namespace {

class Memory : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(rueda_init(nullptr), RUEDA_OK) << rueda_last_error(); }
  void TearDown() override { rueda_shutdown(); }

  rueda_request request(const char* name) {
    rueda_request made{};
    made.struct_size = sizeof(rueda_request);
    made.what = RUEDA_ALLREDUCE;
    made.dtype = RUEDA_FLOAT32;
    made.op = RUEDA_SUM;
    made.name = name;
    made.root_rank = -1;
    made.prescale = made.postscale = 1.0;
    made.ndim = 1;
    made.device = -1;
    made.shape = &count_;
    made.input = made.output = &value_;
    return made;
  }
  int run(const rueda_request& wanted) {
    int64_t handle = 0;
    if (const int refused = rueda_submit(&wanted, 1, &handle); refused != RUEDA_OK) return refused;
    const int status = rueda_wait(handle, 20);
    rueda_release(handle);
    return status;
  }
  int64_t count_ = 1;
  float value_ = 3;
};

TEST_F(Memory, of_a_device_fails_its_operation_alone_where_no_backend_takes_it) {
  rueda_request on_device = request("on_device");
  on_device.memory = RUEDA_DEVICE_MEMORY;
  on_device.device = 0;
  EXPECT_EQ(run(on_device), RUEDA_UNSUPPORTED);
  EXPECT_THAT(rueda_last_error(),
              testing::AllOf(testing::HasSubstr("on_device"), testing::HasSubstr("host memory")));
  rueda_request on_host = request("on_host");
  on_host.device = 0;  // the framework has it on a GPU, and gives a copy in host memory
  EXPECT_EQ(run(on_host), RUEDA_OK) << rueda_last_error();
  EXPECT_EQ(value_, 3.0F);
}

TEST_F(Memory, that_is_shared_is_host_memory) {
  rueda_request shared = request("shared");
  shared.memory = RUEDA_SHARED_MEMORY;
  EXPECT_EQ(run(shared), RUEDA_OK) << rueda_last_error();
}

TEST_F(Memory, of_an_unknown_kind_or_of_no_device_is_refused) {
  rueda_request unknown = request("unknown");
  unknown.memory = 7;
  EXPECT_EQ(run(unknown), RUEDA_INVALID_ARGUMENT);
  EXPECT_THAT(rueda_last_error(), testing::HasSubstr("unknown kind of memory (7)"));
  rueda_request nowhere = request("nowhere");
  nowhere.memory = RUEDA_DEVICE_MEMORY;
  EXPECT_EQ(run(nowhere), RUEDA_INVALID_ARGUMENT);
  EXPECT_THAT(rueda_last_error(), testing::HasSubstr("its device is missing"));
}

// Programs that were built before a field are served as they were; what lies behind their struct is not read.
TEST_F(Memory, is_host_memory_for_callers_that_do_not_know_of_it) {
  for (const size_t bytes :
       {offsetof(rueda_request, priority), offsetof(rueda_request, ready),
        offsetof(rueda_request, numbered_at), offsetof(rueda_request, ready_is_stream)}) {
    rueda_request older = request("older");
    older.struct_size = static_cast<uint32_t>(bytes);
    if (bytes <= offsetof(rueda_request, memory)) older.memory = 7;
    if (bytes <= offsetof(rueda_request, numbered_at)) older.numbered_at = 99;
    older.ready_is_stream = 1;
    EXPECT_EQ(run(older), RUEDA_OK) << rueda_last_error();
  }
  rueda_request odd = request("odd");
  odd.struct_size = sizeof(rueda_request) + 8;
  EXPECT_EQ(run(odd), RUEDA_INVALID_ARGUMENT);
}

}  // namespace
