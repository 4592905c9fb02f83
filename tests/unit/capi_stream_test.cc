// rueda_wait_on_stream in a single-process job, where all operations are in host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/rueda.hpp"

namespace {

TEST(WaitOnStream, needs_an_engine_and_a_handle) {
  EXPECT_EQ(rueda_wait_on_stream(1, nullptr, 0), RUEDA_NOT_INITIALIZED);
  rueda::Session session;
  ASSERT_TRUE(session.init(1).ok());
  EXPECT_EQ(rueda_wait_on_stream(999, nullptr, 0), RUEDA_INVALID_ARGUMENT);
  EXPECT_THAT(rueda_last_error(), testing::HasSubstr("Handle 999 was not created"));
}

TEST(WaitOnStream, returns_when_an_operation_in_host_memory_has_ended) {
  rueda::Session session;
  ASSERT_TRUE(session.init(1).ok());
  std::vector<float> values(1000, 2.0F);
  rueda::Expected<rueda::Handle> handle =
      rueda::allreduce_async(values, "grad", {.op = rueda::Op::kSum, .postscale = 3.0});
  ASSERT_TRUE(handle.ok());
  const rueda::Outcome outcome = handle.value().wait_on_stream(&session, 20);  // no stream: not used
  EXPECT_TRUE(outcome.ok()) << outcome.why;
  EXPECT_TRUE(handle.value().is_done());
  EXPECT_THAT(values, testing::Each(6.0F));
}

}  // namespace
