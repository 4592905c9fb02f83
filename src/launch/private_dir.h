// Where an agent keeps the job's secret and files on its host. Whoever of the agent lives removes it; one
// whose agent was killed altogether is removed by the next agent of the same user.
#pragma once

#include <string>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

struct PrivateDir {
  std::string path;  // mode 0700
  UniqueFd lock;     // held by whoever inherits it; ranks do not
};

// In TMPDIR, or in /tmp.
Result<PrivateDir> make_private_dir();

// Whether an agent may have made this path: what an agent says about itself is not taken on trust.
bool is_private_dir_name(const std::string& path);

// Directories that nobody holds for a minute. Only such as make_private_dir makes, with nothing else in them.
void sweep_private_dirs(const std::string& base);

}  // namespace rueda::launch
