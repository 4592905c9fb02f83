// Gives a connected session our own backend over its data lanes.
#pragma once

#include "rueda/runtime/engine.h"

namespace rueda::runtime {

void attach_native_backend(Session& session);

}  // namespace rueda::runtime
