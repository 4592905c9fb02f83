// Processes that are stopped by a signal.
#pragma once

#include "rueda/base/clock.h"

namespace rueda {

// A process of an elastic job that is stopped for longer is ended, and the others go on without it.
inline constexpr Nanos kElasticStoppedTime = 5 * kSecond;

}  // namespace rueda
