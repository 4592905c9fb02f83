#include "rueda/trace/file_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace rueda::trace {

// A lock of the process, not of the open file: data loaders that are forked must not keep it.
Status lock_for_writing(int fd, const std::string& path) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd, F_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES)) return Status::ok();
  struct flock holder {};
  holder.l_type = F_WRLCK;
  holder.l_whence = SEEK_SET;
  const bool is_known = ::fcntl(fd, F_GETLK, &holder) == 0 && holder.l_type != F_UNLCK;
  const std::string who =
      is_known && holder.l_pid > 0 ? "process " + std::to_string(holder.l_pid) : "another process";
  return {Code::kUnavailable,
          "Cannot write " + path + ": " + who + " is writing it. Give each job a timeline of its own."};
}

}  // namespace rueda::trace
