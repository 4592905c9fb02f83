#include "rueda/control/terms.h"

#include <bit>

namespace rueda::control {

TermsKey key_of(const Terms& terms) {
  return {terms.what,
          terms.dtype,
          terms.op,
          std::bit_cast<uint64_t>(terms.prescale),
          std::bit_cast<uint64_t>(terms.postscale),
          terms.device >= 0,
          terms.memory == MemoryKind::kDevice};
}

}  // namespace rueda::control
