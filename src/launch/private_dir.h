// The directory where an agent keeps the job's secret and files on its host. The agent removes it. If both
// processes of the agent were killed, the next agent of the same user removes it.
#pragma once

#include <string>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

struct PrivateDir {
  std::string path;  // mode 0700
  UniqueFd lock;     // guardian and worker inherit it, ranks do not
};

// In TMPDIR, or in /tmp.
Result<PrivateDir> make_private_dir();

// Whether an agent could have made this path. What an agent says about itself is not trusted.
bool is_private_dir_name(const std::string& path);

// Removes the directory, and what ranks that were killed have left elsewhere: their sockets, and the file
// with the token of the job's metrics.
void remove_private_dir(const std::string& path);
// Removes directories that are older than a minute and that no agent holds: only those that make_private_dir
// makes, and only if they contain nothing else.
void sweep_private_dirs(const std::string& base);

}  // namespace rueda::launch
