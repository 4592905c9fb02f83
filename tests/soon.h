// The deadline of waits that end long before it: it ends what hangs, also on a busy machine under a
// sanitizer.
#pragma once

#include "rueda/base/clock.h"

namespace rueda {

inline Deadline soon() { return Deadline::after(60 * kSecond); }

}  // namespace rueda
