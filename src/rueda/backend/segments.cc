#include "rueda/backend/segments.h"

#include <cstring>

#include "rueda/kernels/kernels.h"

namespace rueda::backend {

void load(const schedule::Spec& spec, double prescale, const Segment& segment, size_t begin, size_t count,
          std::byte* to) {
  if (count == 0) return;
  if (segment.input == nullptr) return kernels::fill_identity(spec.op, spec.dtype, to, count);
  const size_t element = size_of(spec.dtype);
  const std::byte* from = static_cast<const std::byte*>(segment.input) + begin * element;
  if (prescale != 1.0)
    kernels::scale(spec.dtype, from, to, count, Scale{.factor = prescale});
  else
    std::memcpy(to, from, count * element);
}

}  // namespace rueda::backend
