#include "rueda/trace/file_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

Result<UniqueFd> open_to_write(const std::string& path, std::string_view what) {
  const std::string file = std::string(what) + " file " + path;
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
  const int error = errno;
  struct stat info {};
  const bool is_pipe = error == ENXIO;  // or a socket: nobody reads from it
  if (!fd.is_open() && !is_pipe)
    return Status(Code::kUnavailable, "Cannot open the " + file + ": " + std::strerror(error) +
                                          ". Name a file in an existing, writable directory.");
  if (!fd.is_open() || ::fstat(fd.get(), &info) != 0 || !(S_ISREG(info.st_mode) || S_ISCHR(info.st_mode)))
    return Status(Code::kUnavailable, "Cannot write the " + file +
                                          ", because it is a pipe or another special file; name a regular "
                                          "file in an existing, writable directory.");
  if (Status status = lock_for_writing(fd.get(), path); !status.is_ok()) return status;
  return fd;
}

}  // namespace rueda::trace
