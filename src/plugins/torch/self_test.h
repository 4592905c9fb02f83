// Whether the allocators of this torch behave as c10.h says, asked before torch is given ours.
#pragma once

#include <string>

#include "plugins/torch/allocator.h"

namespace rueda::torch {

// Of torch's own allocator: only then may ArenaAllocator be built on it. "" or what was not as expected.
std::string test_original(Allocator& original);
// Of ours, as torch would use it. `find_c10` has succeeded.
std::string test_ours(ArenaAllocator& ours);

}  // namespace rueda::torch
