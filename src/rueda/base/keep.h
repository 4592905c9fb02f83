// Memory that a library or a device may still write after its owner has given up on it.
#pragma once

#include <memory>

namespace rueda {

// Keeps the object until the process ends, and its destructor does not run. Any thread. The object stays
// reachable, so that leak checkers know that this is meant.
void keep_until_exit(std::shared_ptr<void> object);

}  // namespace rueda
