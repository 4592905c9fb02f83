// Makes the hosts of `rueda bench replay`. The network namespaces have no names; a descriptor or a process
// keeps them alive. However this program ends, even by SIGKILL, the kernel removes them and their links.
#pragma once

#include <string>
#include <vector>

#include "bench/faults.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::bench {

class NetworkNamespaces {
 public:
  // Needs CAP_SYS_ADMIN, CAP_NET_ADMIN, ip and tc. If one of them is missing, the error says which.
  static Result<NetworkNamespaces> make(int hosts, int64_t bits_per_s, const std::string& congestion,
                                        const Faults& faults = {});
  // The paths by which a child process can open the namespaces, one per host.
  [[nodiscard]] const std::vector<std::string>& paths() const { return paths_; }

 private:
  UniqueFd switch_;
  std::vector<UniqueFd> hosts_;
  std::vector<std::string> paths_;
};

// Moves the calling thread, and every thread and process that it starts later, into the namespace at path.
Status enter_namespace(const std::string& path);

}  // namespace rueda::bench
