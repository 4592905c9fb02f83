#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "rueda/kernels/kernels.h"
#include "rueda/kernels/table.h"
#include "wire_reference.h"

namespace rueda::kernels {
namespace {

constexpr auto kBlockSize = static_cast<size_t>(kWireBlock);
constexpr Wire kEncoded[] = {Wire::kBfloat16, Wire::kFloat16, Wire::kInt8};

// Runs f on every instruction set of this CPU.
template <class F>
void on_all_targets(const F& f) {
  for (const Table& target : usable_tables()) {
    ASSERT_TRUE(select_target(target.name));
    SCOPED_TRACE(target.name);
    f();
  }
  select_target("");
}

std::vector<float> random_values(size_t count, uint32_t seed, float size = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

struct Sent {
  std::vector<float> kept, errors;
  std::vector<std::byte> bytes;
};

Sent send(Wire wire, const std::vector<float>& values, std::vector<float> errors) {
  const size_t blocks = values.size() / kBlockSize;
  Sent sent{.kept = std::vector<float>(values.size()), .errors = std::move(errors), .bytes = {}};
  sent.bytes.resize(blocks * static_cast<size_t>(wire_block_bytes(wire)));
  encode(wire, values.data(), sent.errors.data(), sent.errors.data(), sent.bytes.data(), blocks);
  decode(wire, sent.bytes.data(), nullptr, sent.kept.data(), values.size());
  return sent;
}

void expect_as_reference(const std::vector<float>& values, const std::vector<float>& errors) {
  for (const Wire wire : kEncoded) {
    SCOPED_TRACE(std::string(name_of(wire)));
    std::vector<float> left = errors;
    const std::vector<float> kept = wire_test::send(wire, values, left);
    on_all_targets([&] {
      const Sent sent = send(wire, values, errors);
      EXPECT_TRUE(wire_test::is_equal_bits(sent.kept, kept));
      EXPECT_TRUE(wire_test::is_equal_bits(sent.errors, left));
    });
  }
}

TEST(KernelsWire, EveryTargetGivesTheBitsOfTheScalarDefinition) {
  for (const float size : {1e-38F, 1e-31F, 1e-20F, 1.0F, 3e4F, 1e30F})
    expect_as_reference(random_values(8 * kBlockSize, 1, size), random_values(8 * kBlockSize, 2, size / 100));
  expect_as_reference(std::vector<float>(kBlockSize, 0.0F), std::vector<float>(kBlockSize, -0.0F));
}

TEST(KernelsWire, ABlockWithAValueThatIsNotFiniteBecomesNanAndLeavesNoError) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest = std::numeric_limits<float>::max();
  for (const float bad : {std::nanf(""), infinity, -infinity, largest}) {
    std::vector<float> values = random_values(3 * kBlockSize, 3);
    values[kBlockSize + 200] = bad;
    expect_as_reference(values, random_values(3 * kBlockSize, 4, 0.01F));
    for (const Wire wire : kEncoded) {
      const Sent sent = send(wire, values, random_values(3 * kBlockSize, 4, 0.01F));
      for (size_t i = 0; i < values.size(); ++i) {
        const bool is_bad = i / kBlockSize == 1;
        EXPECT_EQ(std::isnan(sent.kept[i]), is_bad);
        EXPECT_TRUE(!is_bad || sent.errors[i] == 0.0F);
      }
    }
  }
}

TEST(KernelsWire, AValueThatFloat16CannotHoldMakesItsBlockNan) {
  std::vector<float> values(kBlockSize, 1.0F);
  values[7] = 70000.0F;
  EXPECT_TRUE(std::isnan(send(Wire::kFloat16, values, std::vector<float>(kBlockSize)).kept[0]));
  EXPECT_FALSE(std::isnan(send(Wire::kBfloat16, values, std::vector<float>(kBlockSize)).kept[0]));
}

TEST(KernelsWire, DecodingAddsAndStopsAtAnyElement) {
  const std::vector<float> values = random_values(2 * kBlockSize, 5);
  for (const Wire wire : kEncoded) {
    on_all_targets([&] {
      const Sent sent = send(wire, values, std::vector<float>(values.size()));
      for (const size_t count : {size_t{1}, size_t{3}, size_t{255}, size_t{256}, size_t{257}, size_t{511}}) {
        std::vector<float> sums(values.size(), 2.0F);
        decode(wire, sent.bytes.data(), sums.data(), sums.data(), count);
        for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], i < count ? 2.0F + sent.kept[i] : 2.0F);
      }
    });
  }
}

TEST(KernelsWire, ErrorsMakeUpForWhatWasLost) {
  const std::vector<float> values(kBlockSize, 0.3F);
  std::vector<float> spread = values;
  spread[0] = 100;  // a quantum is larger than all the others
  std::vector<float> errors(kBlockSize, 0.0F), total(kBlockSize, 0.0F);
  constexpr int kSteps = 100;
  for (int step = 0; step < kSteps; ++step) {
    Sent sent = send(Wire::kInt8, spread, errors);
    errors = sent.errors;
    for (size_t i = 0; i < kBlockSize; ++i) total[i] += sent.kept[i];
  }
  EXPECT_NEAR(total[5], 0.3F * kSteps, 1.0F);
}

TEST(KernelsWire, TheErrorMayBeLeftInThePlaceOfTheValuesOrNowhere) {
  const std::vector<float> values = random_values(kBlockSize, 6);
  for (const Wire wire : kEncoded) {
    const Sent sent = send(wire, values, std::vector<float>(kBlockSize, 0.0F));
    std::vector<float> in_place = values;
    std::vector<std::byte> bytes(sent.bytes.size()), plain(sent.bytes.size());
    encode(wire, in_place.data(), nullptr, in_place.data(), bytes.data(), 1);
    encode(wire, values.data(), nullptr, nullptr, plain.data(), 1);
    EXPECT_TRUE(wire_test::is_equal_bits(in_place, sent.errors));
    EXPECT_EQ(bytes, sent.bytes);
    EXPECT_EQ(plain, sent.bytes);
  }
}

}  // namespace
}  // namespace rueda::kernels
