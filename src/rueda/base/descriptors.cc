#include "rueda/base/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>

namespace rueda {
namespace {

// For the program and its libraries, for data loaders, and for strangers during a handshake.
constexpr uint64_t kOtherDescriptors = 256;
// What rank 0 needs for each peer on another host, with all data channels up: four channels, and during init
// its connection to the store. A peer on its own host needs three during init, and none afterwards.
constexpr uint64_t kPerRemoteRank = 6;
constexpr uint64_t kPerLocalRank = 3;

}  // namespace

bool is_out_of_descriptors(int error) { return error == EMFILE || error == ENFILE; }

Status out_of_descriptors(int error) {
  if (error == ENFILE)
    return {Code::kUnavailable,
            "this machine is out of file descriptors; raise fs.file-max with sysctl, or end programs that "
            "hold many."};
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return {Code::kUnavailable, "this process is out of file descriptors: it may open " +
                                  std::to_string(limit.rlim_cur) +
                                  "; raise the limit with ulimit -n (hard limit: ulimit -Hn)."};
}

uint64_t free_descriptors() {
  rlimit limit{};
  std::error_code error;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const std::filesystem::directory_iterator open_ones("/proc/self/fd", error);
  if (error) return 0;
  const auto used = static_cast<uint64_t>(std::distance(begin(open_ones), end(open_ones)));
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t descriptors_for(int32_t ranks, int32_t local_ranks) {
  const auto local = static_cast<uint64_t>(std::clamp(local_ranks, 0, ranks));
  return kOtherDescriptors + kPerLocalRank * local + kPerRemoteRank * (static_cast<uint64_t>(ranks) - local);
}

std::string allow_descriptors(uint64_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return "";
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  if (limit.rlim_cur >= wanted) return "";
  return "this rank may open " + std::to_string(limit.rlim_cur) + " files, but it may need up to " +
         std::to_string(wanted) + "; raise the hard limit (ulimit -Hn) if ranks cannot connect.";
}

}  // namespace rueda
