#include "rueda/kernels/not_finite.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace rueda::kernels::not_finite_test {
namespace {

TEST(NotFinite, finds_the_first_in_any_block_and_none_where_there_is_none) {
  std::vector<float> values(5000, std::numeric_limits<float>::max());
  EXPECT_EQ(first_not_finite(DType::kFloat32, values.data(), 5000), -1);
  values[4321] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_not_finite(DType::kFloat32, values.data(), 5000), 4321);
  values[17] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(first_not_finite(DType::kFloat32, values.data(), 5000), 17);
}

TEST(NotFinite, knows_the_exponents_of_all_floats_and_leaves_integers_alone) {
  const std::vector<uint16_t> half = {0x7BFF, 0xFC00};  // 65504, -infinity
  EXPECT_EQ(first_not_finite(DType::kFloat16, half.data(), 2), 1);
  EXPECT_EQ(first_not_finite(DType::kBfloat16, half.data(), 2), -1) << "as bfloat16 both are finite";
  const std::vector<double> real = {1.0, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(first_not_finite(DType::kFloat64, real.data(), 2), 1);
  const std::vector<int32_t> whole = {-1};
  EXPECT_EQ(first_not_finite(DType::kInt32, whole.data(), 1), -1);
}

}  // namespace
}  // namespace rueda::kernels::not_finite_test
