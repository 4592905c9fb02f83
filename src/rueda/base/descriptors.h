// The limit of open files: raised where rueda needs more, and named where it ends.
#pragma once

#include <cstdint>
#include <string>

#include "rueda/base/status.h"

namespace rueda {

// Whether errno says that this process, or this machine, has no descriptor left.
bool is_out_of_descriptors(int error);
// One sentence: which limit, and how to raise it.
Status out_of_descriptors(int error);

// Descriptors that one rank may need at a time in a world of so many ranks, those of the program included.
uint64_t descriptors_for(int32_t ranks);
// Raises the soft limit to what is wanted, at most to the hard limit. A warning, or "" where it is enough.
std::string allow_descriptors(uint64_t wanted);

}  // namespace rueda
