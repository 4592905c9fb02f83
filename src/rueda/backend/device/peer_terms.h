// What members of a process set tell one another about their GPUs, and what follows from it. Pure: from equal
// rows every member computes the same answer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "rueda/backend/backend.h"
#include "rueda/backend/element_range.h"
#include "rueda/memory/cuda/driver_api.h"

namespace rueda::backend {

// A row of the table that a host sync adds up; the rows of the other members are zeros before. Texts end with
// a null.
struct PeerRow {
  unsigned char gpu[16] = {};  // its UUID; zeros: this member has none
  char name[64] = {};          // of the GPU
  int64_t slot_bytes = 0;      // of the window that it exports; 0: it exports none
  cuda::CUipcMemHandle window = {};
  char why_not[256] = {};  // why it cannot exchange in device memory; empty: it can

  void set_gpu(const cuda::CUuuid& uuid, std::string_view text);
  void set_why_not(std::string_view text);
};

// "rank 0 and rank 1 use the same GPU ..." for the first two that do; empty: none do.
std::string shared_gpu_of(const Group& group, std::span<const PeerRow> rows);
// Why these members cannot exchange in device memory, with the name of the first that cannot; empty: they
// can.
std::string refusal_of(const Group& group, std::span<const PeerRow> rows);
// The size of a section that fits into a slot of every member.
size_t section_bytes_of(std::span<const PeerRow> rows);
// The slot that such a section needs.
size_t slot_bytes_for(size_t section_bytes);

// The sum of a table in host memory, in which each member fills its own place.
schedule::Spec sum_spec(DType dtype, size_t count);

// The part of the `count` elements of a section that adder `index` of `adders` adds; parts begin at multiples
// of 64.
ElementRange share_of(int64_t count, size_t index, size_t adders);

}  // namespace rueda::backend
