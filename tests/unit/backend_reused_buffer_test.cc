#include "rueda/backend/reused_buffer.h"

#include <gmock/gmock.h>

namespace rueda::backend::reused_buffer_test {
namespace {

TEST(ReusedBuffer, grows_at_once_and_shrinks_after_many_modest_calls) {
  ReusedBuffer buffer;
  ASSERT_TRUE(buffer.reserve(10'000'000).is_ok());
  const size_t large = buffer.bytes();
  EXPECT_GE(large, 10'000'000u);
  for (int i = 0; i + 1 < ReusedBuffer::kShrinkAfter; ++i) ASSERT_TRUE(buffer.reserve(5'000).is_ok());
  EXPECT_EQ(buffer.bytes(), large);
  auto memory = buffer.reserve(3'000);
  ASSERT_TRUE(memory.is_ok());
  EXPECT_EQ(buffer.bytes(), 8192u) << "the largest of the modest calls, rounded up";
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.value()) % 64, 0u);
}

TEST(ReusedBuffer, a_large_call_in_between_keeps_it_large) {
  ReusedBuffer buffer;
  for (int step = 0; step < 4; ++step) {
    ASSERT_TRUE(buffer.reserve(10'000'000).is_ok());
    for (int i = 0; i + 1 < ReusedBuffer::kShrinkAfter; ++i) ASSERT_TRUE(buffer.reserve(100).is_ok());
    EXPECT_GE(buffer.bytes(), 10'000'000u) << step;
  }
}

TEST(ReusedBuffer, shrinks_after_many_calls_that_need_none_of_it) {
  ReusedBuffer buffer;
  buffer.pass();
  EXPECT_EQ(buffer.bytes(), 0u);
  ASSERT_TRUE(buffer.reserve(10'000'000).is_ok());
  for (int i = 0; i < ReusedBuffer::kShrinkAfter; ++i) buffer.pass();
  EXPECT_LE(buffer.bytes(), 4096u);
}

TEST(ReusedBuffer, has_memory_even_for_nothing) {
  ReusedBuffer buffer;
  const auto memory = buffer.reserve(0);
  ASSERT_TRUE(memory.is_ok());
  EXPECT_NE(memory.value(), nullptr);
}

TEST(ReusedBuffer, more_memory_than_there_is_gives_a_sentence) {
  ReusedBuffer buffer;
  const auto memory = buffer.reserve(size_t{1} << 62);
  ASSERT_FALSE(memory.is_ok());
  EXPECT_THAT(memory.status().why, testing::HasSubstr("lower RUEDA_FUSION_THRESHOLD"));
  EXPECT_TRUE(buffer.reserve(100).is_ok()) << "it can still be used";
}

}  // namespace
}  // namespace rueda::backend::reused_buffer_test
