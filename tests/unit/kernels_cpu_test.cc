#include "rueda/kernels/cpu.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace rueda::kernels::cpu_test {
namespace {

constexpr CpuAnswers kEverything = {.leaf1_ecx = ~0U, .leaf7_ebx = ~0U, .saved_state = ~uint64_t{0}};

TEST(CpuFeatures, of_no_answers_are_none) {
  const CpuFeatures none = decode({});
  EXPECT_FALSE(none.has_sse4 || none.has_avx2 || none.has_avx3);
}

TEST(CpuFeatures, of_a_cpu_with_everything_are_all) {
  const CpuFeatures all = decode(kEverything);
  EXPECT_TRUE(all.has_sse4 && all.has_avx2 && all.has_avx3);
}

TEST(CpuFeatures, need_every_part_and_the_sets_below) {
  for (const unsigned bit : {20U, 9U, 1U, 25U}) {  // SSE4.2, SSSE3, PCLMUL, AES
    CpuAnswers answers = kEverything;
    answers.leaf1_ecx &= ~(1U << bit);
    const CpuFeatures found = decode(answers);
    EXPECT_FALSE(found.has_sse4 || found.has_avx2 || found.has_avx3) << bit;
  }
  for (const unsigned bit : {28U, 12U, 29U}) {  // AVX, FMA, F16C
    CpuAnswers answers = kEverything;
    answers.leaf1_ecx &= ~(1U << bit);
    const CpuFeatures found = decode(answers);
    EXPECT_TRUE(found.has_sse4 && !found.has_avx2 && !found.has_avx3) << bit;
  }
  for (const unsigned bit : {5U, 3U, 8U}) {  // AVX2, BMI, BMI2
    CpuAnswers answers = kEverything;
    answers.leaf7_ebx &= ~(1U << bit);
    const CpuFeatures found = decode(answers);
    EXPECT_TRUE(found.has_sse4 && !found.has_avx2 && !found.has_avx3) << bit;
  }
  for (const unsigned bit : {16U, 17U, 30U, 31U}) {  // AVX-512 F, DQ, BW, VL
    CpuAnswers answers = kEverything;
    answers.leaf7_ebx &= ~(1U << bit);
    const CpuFeatures found = decode(answers);
    EXPECT_TRUE(found.has_avx2 && !found.has_avx3) << bit;
  }
}

TEST(CpuFeatures, need_an_operating_system_that_saves_the_registers) {
  CpuAnswers answers = kEverything;
  answers.saved_state = 0x7;  // x87, SSE, AVX
  EXPECT_TRUE(decode(answers).has_avx2 && !decode(answers).has_avx3);
  answers.saved_state = 0x3;
  EXPECT_TRUE(decode(answers).has_sse4 && !decode(answers).has_avx2);
  answers = kEverything;
  answers.leaf1_ecx &= ~(1U << 27);  // says nothing about what it saves
  EXPECT_TRUE(decode(answers).has_sse4 && !decode(answers).has_avx2);
}

#if defined(__x86_64__)
bool compiler_finds_f16c() {
#if defined(__clang__)
  return true;  // clang asks for no such feature; a CPU with FMA has it
#else
  return __builtin_cpu_supports("f16c");
#endif
}

TEST(CpuFeatures, of_this_machine_are_those_the_compiler_finds) {
  __builtin_cpu_init();
  const CpuFeatures here = decode(ask_cpu());
  EXPECT_EQ(here.has_sse4, (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
                            __builtin_cpu_supports("aes")));
  EXPECT_EQ(here.has_avx2, (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
                            __builtin_cpu_supports("fma") && compiler_finds_f16c()));
  EXPECT_EQ(here.has_avx3, (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")));
}
#endif

}  // namespace
}  // namespace rueda::kernels::cpu_test
