// A wait between two looks. A signal may end it early.
#pragma once

#include <ctime>

#include "rueda/base/clock.h"

namespace rueda {

inline void sleep_for(Nanos time) {
  const timespec duration{time / kSecond, time % kSecond};
  nanosleep(&duration, nullptr);
}

}  // namespace rueda
