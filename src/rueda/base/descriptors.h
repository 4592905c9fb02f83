// The limit of open files. rueda raises it if it needs more, and error messages name it if it is reached.
#pragma once

#include <cstdint>
#include <string>

#include "rueda/base/status.h"

namespace rueda {

// Whether this errno means that this process, or this machine, has no descriptor left.
bool is_out_of_descriptors(int error);
// One sentence that names the limit and how to raise it.
Status out_of_descriptors(int error);

// How many more files this process may open.
uint64_t free_descriptors();
// How many descriptors one rank may need at the same time in a world of this size, including those
// of the program. local_ranks: of its host; negative: unknown.
uint64_t descriptors_for(int32_t ranks, int32_t local_ranks);
// Raises the soft limit to what is wanted, but not above the hard limit. Returns a warning if that is too
// little, otherwise "".
std::string allow_descriptors(uint64_t wanted);

}  // namespace rueda
