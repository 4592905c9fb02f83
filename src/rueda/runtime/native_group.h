// Gives a connected session our own backend over its data lanes.
#pragma once

#include "rueda/runtime/engine.h"

namespace rueda::runtime {

// A forced algorithm that exists for no collective is a mistake; one that serves only some is not.
Status check_forced_algorithm(const std::string& name);

void attach_native_backend(Session& session);

}  // namespace rueda::runtime
