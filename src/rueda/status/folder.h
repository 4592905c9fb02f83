// The private folder in which the processes of a user that run rueda have their sockets:
// $XDG_RUNTIME_DIR/rueda, or /tmp/rueda-UID. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::status {

inline constexpr size_t kMaxReply = 16u << 20;
inline constexpr size_t kMaxRequest = 64;

inline constexpr std::string_view kProcessSocket = ".sock";  // the ending of the name: a process of a job
inline constexpr std::string_view kLauncherSocket = ".job";  // `rueda run`, which answers for other hosts

std::string folder_path();
// Where processes of this user are to be looked for: a login session has XDG_RUNTIME_DIR, and cron, su and
// many launchers have not. Another value of it than that of a session says where alone.
std::vector<std::string> folders();
// For a process with this value of XDG_RUNTIME_DIR.
std::string folder_path(std::string_view runtime_dir);
// Makes it, mode 0700. Fails if the path is something that others could have made or may enter.
Status make_folder(const std::string& path);

// The sockets in it. Those of processes that have ended are removed. Empty if there is no such folder.
std::vector<std::string> sockets_in(const std::string& path, std::string_view ending = kProcessSocket);
// Removes what ended processes have left there. Whoever outlives a rank may call it.
void remove_dead_sockets(const std::string& path);
std::string socket_name();  // of this process, without its ending; given only once
// The process that listens there, as this process sees it: in a container it may have another pid of its own.
// 0: it is not visible from here, as from inside a container.
int pid_behind(const std::string& socket);

// Asks for "status", "stacks", "metrics" or "record", and returns the answer. Only a process of the same user
// is believed.
struct Reply {
  std::string text;
  int pid = 0;  // as pid_behind
};
Result<Reply> ask(const std::string& socket, const std::string& what, int timeout_ms,
                  size_t max_bytes = kMaxReply);
// The same without waiting: a non-blocking connection on which the answer will arrive until the end of the
// stream.
Result<UniqueFd> begin_to_ask(const std::string& socket, const std::string& what);

}  // namespace rueda::status
