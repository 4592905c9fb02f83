// Makes the hosts of `rueda bench replay`. The network namespaces have no names: they live as long as a
// descriptor or a process holds them. Whatever ends this program, even SIGKILL, the kernel then removes them
// and their links.
#pragma once

#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::bench {

class Spaces {
 public:
  // Needs CAP_SYS_ADMIN and CAP_NET_ADMIN, ip and tc; says in one sentence which of them is missing.
  static Result<Spaces> make(int hosts, int64_t bits_per_s, const std::string& congestion);
  // Where a child process can open each host's namespace.
  [[nodiscard]] const std::vector<std::string>& paths() const { return paths_; }

 private:
  UniqueFd switch_;
  std::vector<UniqueFd> hosts_;
  std::vector<std::string> paths_;
};

// Moves the calling thread, and every thread and process it makes, into the namespace at path.
Status enter_space(const std::string& path);

}  // namespace rueda::bench
