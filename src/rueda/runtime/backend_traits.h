// How the backends of a session want tensors to be treated: which are packed when they are fused, and which
// calls can be cancelled. control must not know backends, so it asks through the function made here
// (control/backend_traits.h). runtime/negotiation makes it once for the coordinator and once for the planner.
#pragma once

#include "rueda/backend/table.h"
#include "rueda/control/backend_traits.h"
#include "rueda/runtime/groups.h"

namespace rueda::runtime {

// Both arguments outlive the function that is returned. Engine thread only.
control::BackendTraitsLookup make_traits_lookup(const backend::BackendTable& backends, const Groups& groups);

}  // namespace rueda::runtime
