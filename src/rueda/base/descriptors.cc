#include "rueda/base/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

namespace rueda {
namespace {

// Files of the program and its libraries, data loaders, strangers in mid-handshake.
constexpr uint64_t kOthers = 256;
// Of rank 0 for each peer on its host while they connect: two lanes of a socket, a process and memory, the
// peer's board, bell and arena, and its connection to the store.
constexpr uint64_t kPerRank = 10;

}  // namespace

bool is_out_of_descriptors(int error) { return error == EMFILE || error == ENFILE; }

Status out_of_descriptors(int error) {
  if (error == ENFILE)
    return {
        Code::kUnavailable,
        "this machine is out of file descriptors; raise fs.file-max with sysctl, or end what holds them."};
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return {Code::kUnavailable, "this process is out of file descriptors: it may open " +
                                  std::to_string(limit.rlim_cur) +
                                  "; raise the limit with ulimit -n (hard limit: ulimit -Hn)."};
}

uint64_t descriptors_for(int32_t ranks) { return kOthers + kPerRank * static_cast<uint64_t>(ranks); }

std::string allow_descriptors(uint64_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return "";
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  if (limit.rlim_cur >= wanted) return "";
  return "this rank may open " + std::to_string(limit.rlim_cur) + " files but may need up to " +
         std::to_string(wanted) + "; raise the hard limit (ulimit -Hn) if ranks cannot connect.";
}

}  // namespace rueda
