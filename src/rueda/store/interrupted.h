// How a wait for other ranks hears that its process wants to give up, as after Ctrl-C.
#pragma once

#include <functional>

#include "rueda/base/status.h"

namespace rueda::store {

// Asked several times a second on the waiting thread; empty: nobody interrupts. Once true, it stays true.
using Interrupted = std::function<bool()>;

inline bool is_set(const Interrupted& is_interrupted) { return is_interrupted && is_interrupted(); }

inline Status interrupted_status() {
  return {Code::kUnavailable, "a signal interrupted init while it waited for other ranks."};
}

}  // namespace rueda::store
