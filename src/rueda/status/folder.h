// The private folder in which the processes of a user that run rueda have their sockets:
// $XDG_RUNTIME_DIR/rueda, or /tmp/rueda-UID. Any thread.
#pragma once

#include <string>
#include <vector>

#include "rueda/base/status.h"

namespace rueda::status {

inline constexpr size_t kMaxReply = 16u << 20;
inline constexpr size_t kMaxRequest = 64;

std::string folder_path();
// Makes it, mode 0700. Fails if the path is something that others could have made or may enter.
Status make_folder(const std::string& path);

// The sockets in it. Those of processes that have ended are removed. Empty if there is no such folder.
std::vector<std::string> sockets_in(const std::string& path);
// Asks for "status", "stacks" or "metrics", and returns the answer. Only a process of the same user is
// believed.
Result<std::string> ask(const std::string& socket, const std::string& what, int timeout_ms);

}  // namespace rueda::status
