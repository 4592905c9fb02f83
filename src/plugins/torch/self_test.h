// Tests whether the allocators of this torch behave as c10.h says, before torch is given ours.
#pragma once

#include <string>

#include "plugins/torch/allocator.h"

namespace rueda::torch {

// Tests torch's own allocator. ArenaAllocator may be built on it only if this succeeds. Returns "" or what
// was not as expected.
std::string test_original(Allocator& original);
// Tests ours as torch would use it. `find_c10` must have succeeded.
std::string test_ours(ArenaAllocator& ours);

}  // namespace rueda::torch
