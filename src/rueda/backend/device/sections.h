// Cuts a call in device memory into sections, which pass through host memory one after the other: while one
// is reduced, the next is on its way from the device and the one before on its way back. Pure; every member
// cuts alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rueda/backend/backend.h"

namespace rueda::backend {

// Elements of one tensor, and their place in the section's input or output.
struct SectionRun {
  size_t segment = 0;
  int64_t begin = 0;  // in the tensor's input or output
  int64_t at = 0;     // in the section's input or output
  int64_t count = 0;

  bool operator==(const SectionRun&) const = default;
};

// What one call in host memory computes.
struct Section {
  schedule::Spec spec;              // its counts are those of its only segment
  bool is_in_place = false;         // its output is its input
  int64_t given = 0, taken = 0;     // elements of this member's input and output
  std::vector<SectionRun> in, out;  // in ascending order of `at`, without gaps
};

// At least one section, and as many on every member; each needs about section_bytes of host memory. An Adasum
// is one section, because it multiplies whole tensors.
std::vector<Section> cut(const Call& call, size_t section_bytes);

}  // namespace rueda::backend
