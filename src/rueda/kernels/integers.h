// Scaling of integers and bools: plain code, the same on every target. Internal to the module.
#pragma once

#include <cstddef>

#include "rueda/base/types.h"

namespace rueda::kernels {

// out[i] = in[i] / divisor * factor, truncated toward zero; out may be in. With factor 1 the division is
// exact. Otherwise the result is computed in float64, converted to int64 (saturating; NaN gives 0), and
// wrapped to the element type, as the sums before it are. A bool is true if its product is not zero.
void scale_integers(DType dtype, const void* in, void* out, size_t count, const Scale& scale);

}  // namespace rueda::kernels
