// How a buffer is cut into blocks (one per rank) and chunks (the unit of pipelining). Pure: every rank
// computes the same cuts from the same spec and topology. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "rueda/schedule/step.h"
#include "rueda/schedule/topology.h"

namespace rueda::schedule {

// Consecutive blocks of elements: block i is [offsets[i], offsets[i + 1]).
struct Blocks {
  std::vector<int64_t> offsets;  // [blocks + 1]

  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(offsets.size()) - 1; }
  [[nodiscard]] int64_t begin(int32_t i) const { return offsets[i]; }
  [[nodiscard]] int64_t count(int32_t i) const { return offsets[i + 1] - offsets[i]; }
  [[nodiscard]] int64_t total() const { return offsets.back(); }
  [[nodiscard]] int64_t largest() const;

  static Blocks of_counts(const std::vector<int64_t>& counts);
  // n nearly equal blocks that end at cache lines. A tiny buffer therefore makes one block, and the
  // others are empty.
  static Blocks even(int64_t count, int32_t n, DType dtype);
};

// Cuts every block into chunks of `chunk_elements` elements; the last one of a block may be shorter.
struct Chunks {
  int64_t chunk_elements = 1;
  int64_t rounds = 1;  // chunks of the largest block

  // Chunk `round` of a slice; empty beyond its end.
  [[nodiscard]] Slice of(const Slice& slice, int64_t round) const;

  // Topology::chunk_bytes, or more if the schedule would otherwise have more than some ten thousand steps.
  static Chunks plan(const Spec& spec, const Topology& topology, int64_t largest_block,
                     int64_t steps_per_round);
};

int64_t elements_of_line(DType dtype);  // of a cache line
int32_t mod(int64_t a, int32_t n);      // in [0, n) for negative a as well
int32_t floor_power_of_two(int32_t n);  // the largest power of two ≤ n
int32_t ceil_log2(int32_t n);           // the smallest k with 2^k ≥ n

}  // namespace rueda::schedule
