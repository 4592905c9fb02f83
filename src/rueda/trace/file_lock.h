// Files that this process alone writes, while it has them open.
#pragma once

#include <string>
#include <string_view>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::trace {

// Until the process closes the file. Fails if another process writes it. A file system without locks
// allows everything.
Status lock_for_writing(int fd, const std::string& path);

// Opens, creates and locks a file. Refuses what is neither a file nor a character device: a pipe would block,
// or end the process. what: "timeline" or "record", for people.
Result<UniqueFd> open_to_write(const std::string& path, std::string_view what);

}  // namespace rueda::trace
