#include "rueda/trace/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "rueda/trace/file_lock.h"

namespace rueda::trace {
namespace {

// A kill can cut a write only between two pages. Writes are small, so most of them contain at most
// one page boundary.
constexpr size_t kWriteBytes = 4'096;

}  // namespace

Status TraceFile::open(const std::string& path) {
  close();
  path_ = path;
  Result<UniqueFd> opened = open_to_write(path, "timeline");
  if (!opened.is_ok()) return opened.status();
  fd_ = std::move(opened).value();
  Status status;
  if (::ftruncate(fd_.get(), 0) != 0 && errno != EINVAL)  // EINVAL: a device
    status = {Code::kUnavailable,
              "Cannot empty the timeline file " + path + ": " + std::strerror(errno) + "."};
  bracket_ = 0;
  if (status.is_ok()) status = write_array_part("[\n]");
  if (!status.is_ok()) {
    close();
    return status;
  }
  bracket_ = 2;
  struct stat info {};
  if (fstat(fd_.get(), &info) != 0) info = {};
  device_ = info.st_dev;
  inode_ = info.st_ino;
  return Status::ok();
}

bool TraceFile::reopen() {
  close();
  fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe by now
  struct stat info {};
  const bool is_same = is_open() && fstat(fd_.get(), &info) == 0 && info.st_dev == device_ &&
                       info.st_ino == inode_ && info.st_size == bracket_ + 1 &&
                       lock_for_writing(fd_.get(), path_).is_ok();
  if (!is_same) close();
  return is_same;
}

Status TraceFile::append(const std::vector<std::string>& objects) {
  std::string text;
  for (size_t i = 0; i < objects.size(); ++i) {
    text += objects[i];
    const bool is_last = i + 1 == objects.size();
    if (!is_last && text.size() + objects[i + 1].size() < kWriteBytes) continue;
    const auto bytes = static_cast<off_t>(text.size());
    if (Status status = write_array_part(std::exchange(text, {}) + "]"); !status.is_ok()) return status;
    bracket_ += bytes;
  }
  return Status::ok();
}

Status TraceFile::write_array_part(std::string text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n =
        ::pwrite(fd_.get(), text.data() + done, text.size() - done, bracket_ + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const Status status{Code::kUnavailable, "Cannot write the timeline file " + path_ + ": " +
                                                  std::strerror(n < 0 ? errno : ENOSPC) + "."};
      // Cuts off the rest of the failed write, so that the file stays an array.
      if (::pwrite(fd_.get(), "]", 1, bracket_) == 1) (void)!::ftruncate(fd_.get(), bracket_ + 1);
      return status;
    }
    done += static_cast<size_t>(n);
  }
  return Status::ok();
}

void TraceFile::close() { fd_.reset(); }

}  // namespace rueda::trace
