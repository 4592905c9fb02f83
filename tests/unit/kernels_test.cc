// Every kernel against the scalar definition, on every instruction set that this CPU has.
#include "rueda/kernels/kernels.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels_reference.h"
#include "rueda/kernels/table.h"

namespace rueda::kernels::test::kernels_test {
namespace {

using namespace rueda::kernels_test;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
// Counts around every vector width and unroll factor, and beyond the block of 1024.
constexpr size_t kCounts[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 200, 257, 1024, 2500};

class EveryTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(select_target(GetParam()));
    ASSERT_EQ(GetParam(), active_target());
  }
  void TearDown() override { select_target(""); }
  std::mt19937_64 random_{20261121};
};

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const Table& table : usable_tables()) names.emplace_back(table.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Kernels, EveryTarget, testing::ValuesIn(target_names()),
                         [](const auto& info) { return info.param; });

template <class F>
void for_each_type(F f) {
  for (int d = 0; d < kDTypeCount; ++d) with_type(static_cast<DType>(d), f);
}

template <DType kType>
void expect_same(const std::vector<typename Element<kType>::Raw>& got,
                 const std::vector<typename Element<kType>::Raw>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(same_element<kType>(got[i], want[i]))
        << what << " " << name_of(kType) << " element " << i << " of " << got.size() << ": " << +got[i]
        << " instead of " << +want[i];
}

template <DType kType>
std::vector<typename Element<kType>::Raw> reference_reduction(
    ReduceOp op, const std::vector<std::vector<typename Element<kType>::Raw>>& sources, const Scale& scale) {
  using E = Element<kType>;
  std::vector<typename E::Raw> out(sources[0].size());
  for (size_t i = 0; i < out.size(); ++i) {
    auto acc = E::widen(sources[0][i]);
    for (size_t k = 1; k < sources.size(); ++k)
      acc = combine_one(op, kType == DType::kBool, acc, E::widen(sources[k][i]));
    out[i] = E::narrow(scale_one(scale, kType == DType::kBool, acc));
  }
  return out;
}

TEST_P(EveryTarget, widens_all_65536_patterns_of_16_bit_floats) {
  std::vector<uint16_t> in(65536);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
  std::vector<float> out(in.size());
  widen(DType::kFloat16, in.data(), out.data(), in.size());
  for (size_t i = 0; i < in.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]),
              std::bit_cast<uint32_t>(Element<DType::kFloat16>::widen(in[i])))
        << i;
  widen(DType::kBfloat16, in.data(), out.data(), in.size());
  for (size_t i = 0; i < in.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), uint32_t{in[i]} << 16) << i;
}

// The patterns themselves, the ties between neighbours, and one float32 step beside each tie.
TEST_P(EveryTarget, narrows_to_nearest_even_at_every_pattern_and_tie) {
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const int mantissa_bits = mantissa_bits_of(dtype);
    std::vector<float> in;
    for (uint32_t i = 0; i < 65536; ++i) {
      const float low = widen16(static_cast<uint16_t>(i), mantissa_bits);
      const float high = widen16(static_cast<uint16_t>(i + 1), mantissa_bits);
      const auto tie = static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
      for (const float f : {low, tie, std::nextafterf(tie, INFINITY), std::nextafterf(tie, -INFINITY)})
        in.push_back(f);
    }
    for (const float f : {65519.9f, 65520.0f, 65536.0f, 1e38f, 3.4e38f, 1e-45f, 5.9e-8f, 2.98e-8f, 2.99e-8f})
      for (const float s : {f, -f}) in.push_back(s);
    std::vector<uint16_t> out(in.size());
    finish(dtype, in.data(), out.data(), in.size(), {});
    for (size_t i = 0; i < in.size(); ++i)
      ASSERT_EQ(out[i], narrow16(in[i], mantissa_bits)) << name_of(dtype) << " of " << in[i] << " at " << i;
  }
}

TEST_P(EveryTarget, reduces_two_vectors_of_any_length) {
  for_each_type([&](auto type) {
    for (const ReduceOp op : kOps)
      for (const size_t count : kCounts) {
        const auto a = random_elements<type()>(count, random_), b = random_elements<type()>(count, random_);
        auto out = a;
        reduce(op, type(), a.data(), b.data(), out.data(), count);
        expect_same<type()>(out, reference_reduction<type()>(op, {a, b}, {}),
                            "reduce " + std::string(name_of(op)));
      }
  });
}

TEST_P(EveryTarget, reduces_in_place_over_either_operand) {
  for_each_type([&](auto type) {
    const auto a = random_elements<type()>(777, random_), b = random_elements<type()>(777, random_);
    const auto want = reference_reduction<type()>(ReduceOp::kSum, {a, b}, {});
    auto over_a = a, over_b = b;
    reduce(ReduceOp::kSum, type(), over_a.data(), b.data(), over_a.data(), 777);
    reduce(ReduceOp::kSum, type(), a.data(), over_b.data(), over_b.data(), 777);
    expect_same<type()>(over_a, want, "over a");
    expect_same<type()>(over_b, want, "over b");
  });
}

TEST_P(EveryTarget, reduces_many_sources_in_order_and_scales_once) {
  const Scale scales[] = {{}, {1.0, 3}, {0.5, 1}, {-1.7, 5}, {1.0, 49}};
  for_each_type([&](auto type) {
    for (const size_t n : {1, 2, 3, 5, 8, 33, 70})
      for (const Scale& scale : scales)
        for (const ReduceOp op : kOps) {
          std::vector<std::vector<typename Element<type()>::Raw>> sources;
          std::vector<const void*> pointers;
          for (size_t k = 0; k < n; ++k) sources.push_back(random_elements<type()>(1100, random_));
          const auto want = reference_reduction<type()>(op, sources, scale);
          for (auto& source : sources) pointers.push_back(source.data());
          auto& out = sources[n / 2];  // in place over a source in the middle
          reduce_sources(op, type(), pointers, out.data(), out.size(), scale);
          expect_same<type()>(out, want, "reduction of " + std::to_string(n));
        }
  });
}

TEST_P(EveryTarget, accumulating_then_finishing_equals_one_reduction) {
  for_each_type([&](auto type) {
    using E = Element<type()>;
    for (const ReduceOp op : kOps)
      for (const size_t count : kCounts) {
        std::vector<std::vector<typename E::Raw>> sources;
        for (int k = 0; k < 3; ++k) sources.push_back(random_elements<type()>(count, random_));
        std::vector<typename E::Acc> acc(count), next(count);
        std::vector<typename E::Raw> out(count);
        widen(type(), sources[0].data(), acc.data(), count);
        accumulate(op, type(), acc.data(), sources[1].data(), next.data(), count);
        accumulate(op, type(), next.data(), sources[2].data(), next.data(), count);
        const Scale scale{0.25, 3};
        finish(type(), next.data(), out.data(), count, scale);
        expect_same<type()>(out, reference_reduction<type()>(op, sources, scale), "accumulate");
      }
  });
}

TEST_P(EveryTarget, scales_within_the_type_in_place) {
  for_each_type([&](auto type) {
    for (const Scale& factor : {Scale{}, Scale{2.5, 1}, Scale{1e30, 1}, Scale{1.0, 7}, Scale{0.0, 1}}) {
      auto values = random_elements<type()>(1030, random_);
      const auto want = reference_reduction<type()>(ReduceOp::kMax, {values}, factor);
      scale(type(), values.data(), values.data(), values.size(), factor);
      expect_same<type()>(values, want, "scale by " + std::to_string(factor.factor));
    }
  });
}

TEST_P(EveryTarget, min_and_max_propagate_nan_from_either_side) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax})
    for (size_t count = 1; count < 40; ++count) {
      const std::vector<float> numbers(count, 1.0f), nans(count, nan);
      std::vector<float> out(count);
      reduce(op, DType::kFloat32, numbers.data(), nans.data(), out.data(), count);
      for (const float f : out) ASSERT_TRUE(std::isnan(f));
      reduce(op, DType::kFloat32, nans.data(), numbers.data(), out.data(), count);
      for (const float f : out) ASSERT_TRUE(std::isnan(f));
    }
}

TEST_P(EveryTarget, averages_integers_exactly_and_toward_zero) {
  const int64_t big = (int64_t{1} << 53) + 1;
  const std::vector<int64_t> in{big, -big, 7, -7, 49 * 11, -103, std::numeric_limits<int64_t>::min()};
  for (const int64_t divisor : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{49}, int64_t{103}}) {
    std::vector<int64_t> out(in.size());
    finish(DType::kInt64, in.data(), out.data(), in.size(), {1.0, divisor});
    for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(out[i], in[i] / divisor);
  }
}

TEST_P(EveryTarget, sums_of_16_bit_floats_are_scaled_before_they_are_rounded) {
  const std::vector<uint16_t> in(37, narrow16(40000.0f, 10));  // 80000 is beyond float16
  std::vector<uint16_t> out(in.size());
  const void* sources[] = {in.data(), in.data()};
  reduce_sources(ReduceOp::kSum, DType::kFloat16, sources, out.data(), out.size(), {1.0, 2});
  EXPECT_EQ(out, in);
}

template <DType kType>
std::vector<typename Element<kType>::Raw> reference_adasum(
    const std::vector<typename Element<kType>::Raw>& a, const std::vector<typename Element<kType>::Raw>& b) {
  using E = Element<kType>;
  double ab[8] = {}, aa[8] = {}, bb[8] = {};
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = E::widen(a[i]), y = E::widen(b[i]);
    ab[i % 8] += x * y, aa[i % 8] += x * x, bb[i % 8] += y * y;
  }
  const auto total = [](const double* p) {
    return ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
  };
  const double tiny = std::sqrt(std::numeric_limits<double>::min());
  const double fa = total(aa) < tiny ? 1 : 1 - total(ab) / (2 * total(aa));
  const double fb = total(bb) < tiny ? 1 : 1 - total(ab) / (2 * total(bb));
  std::vector<typename E::Raw> out(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = E::widen(a[i]), y = E::widen(b[i]);
    out[i] = E::narrow(static_cast<typename E::Acc>(fa * x + fb * y));
  }
  return out;
}

TEST_P(EveryTarget, adasum_has_the_bits_of_the_scalar_definition) {
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64})
    with_type(dtype, [&](auto type) {
      if constexpr (std::is_floating_point_v<typename Element<type()>::Acc>) {
        using E = Element<type()>;
        std::normal_distribution<double> normal;
        for (const size_t count : kCounts) {
          std::vector<typename E::Raw> a(count), b(count);
          for (auto& x : a) x = E::narrow(static_cast<typename E::Acc>(normal(random_)));
          for (auto& x : b) x = E::narrow(static_cast<typename E::Acc>(normal(random_)));
          const auto want = reference_adasum<type()>(a, b);
          auto over_a = a, over_b = b;
          adasum(type(), over_a.data(), b.data(), over_a.data(), count);
          adasum(type(), a.data(), over_b.data(), over_b.data(), count);
          expect_same<type()>(over_a, want, "adasum over a");
          expect_same<type()>(over_b, want, "adasum over b");
        }
      }
    });
}

TEST_P(EveryTarget, adasum_adds_orthogonal_averages_parallel_and_ignores_zero) {
  const std::vector<double> x{3, 0, 0}, y{0, 4, 0}, zero(3);
  std::vector<double> out(3);
  adasum(DType::kFloat64, x.data(), y.data(), out.data(), 3);
  EXPECT_EQ(out, (std::vector<double>{3, 4, 0}));
  adasum(DType::kFloat64, x.data(), x.data(), out.data(), 3);
  EXPECT_EQ(out, x);
  adasum(DType::kFloat64, x.data(), zero.data(), out.data(), 3);
  EXPECT_EQ(out, x);
}

TEST(Kernels, the_identity_leaves_every_operand_unchanged) {
  std::mt19937_64 random(7);
  for_each_type([&](auto type) {
    for (const ReduceOp op : kOps) {
      const auto values = random_elements<type()>(300, random);
      auto identity = values, out = values;
      fill_identity(op, type(), identity.data(), identity.size());
      reduce(op, type(), identity.data(), values.data(), out.data(), out.size());
      // -0 + 0 is 0: the one value a sum of zeros does not keep.
      for (size_t i = 0; i < out.size(); ++i)
        ASSERT_TRUE(same_element<type()>(out[i], values[i]) ||
                    Element<type()>::widen(out[i]) == Element<type()>::widen(values[i]))
            << name_of(type()) << " " << name_of(op);
    }
  });
}

TEST(Kernels, the_best_target_comes_first_and_an_unknown_one_is_refused) {
  ASSERT_FALSE(usable_tables().empty());
  EXPECT_STREQ(active_target(), usable_tables().front().name);
  EXPECT_FALSE(select_target("Z80"));
  EXPECT_STREQ(active_target(), usable_tables().front().name);
}

TEST(Kernels, no_slot_of_a_table_is_empty) {
  for (const Table& each : usable_tables()) {
    for (const auto& reductions : each.reduce_half)
      for (const ReduceFn reduction : reductions) EXPECT_NE(reduction, nullptr) << each.name;
    for (const auto& reductions : each.reduce_real)
      for (const ReduceFn reduction : reductions) EXPECT_NE(reduction, nullptr) << each.name;
    for (const auto& reductions : each.reduce_integer)
      for (const ReduceFn reduction : reductions) EXPECT_NE(reduction, nullptr) << each.name;
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(each.widen[i] && each.narrow[i] && each.dot[i] && each.combine[i]) << each.name;
      for (const AccumulateFn accumulate : each.accumulate[i]) EXPECT_NE(accumulate, nullptr) << each.name;
    }
  }
}

}  // namespace
}  // namespace rueda::kernels::test::kernels_test
