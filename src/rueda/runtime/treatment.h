// How the backends of a session want tensors to be treated: which are packed when they are fused, and which
// calls can be taken back. control must not know backends, so it asks through the function made here
// (control/treatment.h). runtime/negotiation makes it once for the coordinator and once for the planner.
#pragma once

#include "rueda/backend/table.h"
#include "rueda/control/treatment.h"
#include "rueda/runtime/groups.h"

namespace rueda::runtime {

// Both arguments outlive the function that is returned. Engine thread only.
control::Treatments treatments_of(const backend::BackendTable& backends, const Groups& groups);

}  // namespace rueda::runtime
