// Finds NaN and infinities.
#pragma once

#include <cstdint>

#include "rueda/base/types.h"

namespace rueda::kernels {

// The index of the first element that is NaN or infinite; -1 if there is none, as always for types without
// them.
int64_t first_not_finite(DType dtype, const void* elements, int64_t count);

}  // namespace rueda::kernels
