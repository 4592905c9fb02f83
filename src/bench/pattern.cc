#include "bench/pattern.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace rueda::bench {
namespace {

constexpr size_t kPeriod = 64;
constexpr size_t kBlock = 64 * kPeriod;  // 16 KiB, so that it stays in the first-level cache

std::array<float, kBlock> block_of(Pattern pattern) {
  std::array<float, kBlock> block;
  for (size_t i = 0; i < kBlock; ++i)
    block[i] = static_cast<float>((static_cast<uint64_t>(pattern.phase) + i) % kPeriod) * pattern.factor +
               pattern.offset;
  return block;
}

}  // namespace

Pattern pattern_of(int rank, int64_t iteration, int64_t first) {
  return {.phase = iteration + first, .factor = 1, .offset = static_cast<float>(rank)};
}

Pattern pattern_of_sum(int ranks, int64_t iteration, int64_t first) {
  return {.phase = iteration + first,
          .factor = static_cast<float>(ranks),
          .offset = static_cast<float>(ranks * (ranks - 1) / 2)};
}

void fill(std::span<float> values, Pattern pattern) {
  const auto block = block_of(pattern);
  for (size_t at = 0; at < values.size(); at += kBlock)
    std::memcpy(&values[at], block.data(), sizeof(float) * std::min(kBlock, values.size() - at));
}

bool holds(std::span<const float> values, Pattern pattern) {
  const auto block = block_of(pattern);
  for (size_t at = 0; at < values.size(); at += kBlock)
    if (std::memcmp(&values[at], block.data(), sizeof(float) * std::min(kBlock, values.size() - at)) != 0)
      return false;
  return true;
}

bool nearly_holds(std::span<const float> values, Pattern pattern, double share) {
  const auto block = block_of(pattern);
  const double most = share * (static_cast<double>(kPeriod) * pattern.factor + pattern.offset);
  for (size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(static_cast<double>(values[i]) - block[i % kBlock]) <= most)) return false;  // NaN is not
  return true;
}

}  // namespace rueda::bench
