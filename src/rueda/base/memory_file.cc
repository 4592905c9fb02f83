#include "rueda/base/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "rueda/base/descriptors.h"

namespace rueda {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// What to do depends on the errno: only a forbidden call is a matter of the container.
std::string advice(int error) {
  const bool is_forbidden = error == EPERM || error == EACCES || error == ENOSYS;
  return is_forbidden ? " Allow memfd_create in the container's seccomp profile." : "";
}

Status fault(const char* what, size_t bytes, int error) {
  if (is_out_of_descriptors(error)) return out_of_descriptors(error);
  return {Code::kUnavailable, std::string("cannot ") + what + " " + std::to_string(bytes) +
                                  " bytes of shared memory: " + std::strerror(error) + "." + advice(error)};
}

}  // namespace

size_t max_file_bytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<off_t>::max();
  return limit.rlim_cur;
}

Result<UniqueFd> make_memory_file(size_t bytes) {
  UniqueFd file(memfd_create("rueda", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) return fault("create", bytes, errno);
  if (bytes > max_file_bytes())
    return Status(Code::kUnavailable, "cannot size " + std::to_string(bytes) +
                                          " bytes of shared memory: files of this process may have " +
                                          std::to_string(max_file_bytes()) +
                                          " at most. Allow files of any size (ulimit -f unlimited).");
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return fault("size", bytes, errno);
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return fault("seal", bytes, errno);
  return file;
}

bool is_sealed_memory(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals;
}

}  // namespace rueda
