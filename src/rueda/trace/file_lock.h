// Keeps two jobs from writing one file.
#pragma once

#include <string>

#include "rueda/base/status.h"

namespace rueda::trace {

// Until the process closes the file. Fails if another process writes it. A file system without locks
// allows everything.
Status lock_for_writing(int fd, const std::string& path);

}  // namespace rueda::trace
