// What control must know of the backend that will run a tensor: from which size the tensor travels alone, and
// whether its call can be taken back. The first decides which tensors share a transfer, the second what may
// belong to a learned plan. control knows no backend: coordinator and planner get a function that answers
// (runtime/treatment.h gives it to them). Pure values.
#pragma once

#include <cstdint>
#include <functional>

#include "rueda/control/terms.h"

namespace rueda::control {

struct Treatment {
  int64_t alone_bytes = 0;    // a tensor that is as large travels alone: packing would cost more; 0 = none
  bool can_take_back = true;  // a call with such tensors can be, as learned plans need it
};

// Of tensors with these terms in this process set; the default is for tests. Equal terms (key_of) have equal
// answers.
using Treatments = std::function<Treatment(int32_t process_set, const Terms& terms)>;
inline Treatment default_treatment(int32_t /*process_set*/, const Terms& /*terms*/) { return {}; }

}  // namespace rueda::control
