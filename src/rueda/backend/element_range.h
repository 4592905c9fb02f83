// The part of a tensor, or of a run of tensors, that falls to one rank.
#pragma once

#include <cstdint>

namespace rueda::backend {

struct ElementRange {
  int64_t begin = 0, count = 0;  // elements
  bool operator==(const ElementRange&) const = default;
};

}  // namespace rueda::backend
