// Internal to detection. Pure.
#pragma once

#include "rueda/store/world.h"

namespace rueda::store {

// The world as if no launcher were inside another: the first match in the documented order. detect_world()
// asks with and without the variables of a launcher.
Result<World> detect_one(const GetEnv& get_env);

}  // namespace rueda::store
