#include "rueda/schedule/blocks.h"

#include <algorithm>
#include <bit>

#include "rueda/base/check.h"

namespace rueda::schedule {

namespace {
// The most steps of one rank, unless its share is larger than that. Larger chunks are received in bursts:
// 256 MiB between 4 hosts of 1 Gbit/s used 88 % of the links with a limit of 4,000 steps, and 99 % with this.
constexpr int64_t kMaxSteps = 1 << 16;
constexpr int64_t kCacheLineBytes = 64;
}  // namespace

int64_t Blocks::largest() const {
  int64_t largest = 0;
  for (int32_t i = 0; i < size(); ++i) largest = std::max(largest, count(i));
  return largest;
}

Blocks Blocks::of_counts(const std::vector<int64_t>& counts) {
  Blocks blocks;
  blocks.offsets.push_back(0);
  for (int64_t count : counts) blocks.offsets.push_back(blocks.offsets.back() + count);
  return blocks;
}

Blocks Blocks::even(int64_t count, int32_t n, DType dtype) {
  const int64_t line = elements_of_line(dtype);
  const int64_t lines = (count + line - 1) / line;
  Blocks blocks;
  for (int64_t i = 0; i <= n; ++i) {
    const int64_t lines_before = lines / n * i + std::min(i, lines % n);
    blocks.offsets.push_back(std::min(count, lines_before * line));
  }
  return blocks;
}

Slice Chunks::of(const Slice& slice, int64_t round) const {
  const int64_t begin = std::min(slice.count, round * chunk_elements);
  return {slice.buffer, slice.begin + begin, std::min(chunk_elements, slice.count - begin)};
}

Chunks Chunks::plan(const Spec& spec, const Topology& topology, int64_t largest_block,
                    int64_t steps_per_round) {
  RUEDA_CHECK(topology.chunk_bytes > 0, "chunk_bytes is positive");
  Chunks chunks;
  const int64_t max_rounds = std::max<int64_t>(1, kMaxSteps / std::max<int64_t>(1, steps_per_round));
  const int64_t wanted =
      std::max<int64_t>(1, topology.chunk_bytes / static_cast<int64_t>(size_of(spec.dtype)));
  chunks.chunk_elements = std::max(wanted, (largest_block + max_rounds - 1) / max_rounds);
  chunks.rounds = std::max<int64_t>(1, (largest_block + chunks.chunk_elements - 1) / chunks.chunk_elements);
  return chunks;
}

int64_t elements_of_line(DType dtype) { return kCacheLineBytes / static_cast<int64_t>(size_of(dtype)); }

int32_t mod(int64_t a, int32_t n) { return static_cast<int32_t>(((a % n) + n) % n); }

int32_t floor_power_of_two(int32_t n) {
  return static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(n)));
}

int32_t ceil_log2(int32_t n) { return n <= 1 ? 0 : std::bit_width(static_cast<uint32_t>(n - 1)); }

}  // namespace rueda::schedule
