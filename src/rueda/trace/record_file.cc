#include "rueda/trace/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "rueda/trace/file_lock.h"

namespace rueda::trace {

std::string record_path(const std::string& timeline, Rank rank) {
  return timeline + ".rank" + std::to_string(rank) + ".rec";
}

Status RecordFile::open(const std::string& path, bool goes_on) {
  close();
  const bool appends = goes_on && path == path_;
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.is_open())
    return {Code::kUnavailable, "Cannot open the record file " + path + ": " + std::strerror(errno) +
                                    ". Name a file in an existing, writable directory."};
  if (Status status = lock_for_writing(fd.get(), path); !status.is_ok()) return status;
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) info = {};
  const bool is_as_left = appends && info.st_dev == device_ && info.st_ino == inode_ && info.st_size == size_;
  fd_ = std::move(fd);
  path_ = path;
  if (is_as_left) return Status::ok();
  device_ = info.st_dev;
  inode_ = info.st_ino;
  size_ = 0;
  if (S_ISREG(info.st_mode) && ::ftruncate(fd_.get(), 0) != 0)
    return {Code::kUnavailable, "Cannot empty the record file " + path + ": " + std::strerror(errno) + "."};
  const std::array<Slot, 1> first = {Slot{SlotKind::kFile, 0, 0, 0, kFileMagic, kRecordVersion, 0}};
  return append(first);
}

Status RecordFile::append(std::span<const Slot> slots) {
  const auto raw = std::as_bytes(slots);
  size_t done = 0;
  while (done < raw.size()) {
    const ssize_t n =
        ::pwrite(fd_.get(), raw.data() + done, raw.size() - done, size_ + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const Status status{Code::kUnavailable, "Cannot write the record file " + path_ + ": " +
                                                  std::strerror(n < 0 ? errno : ENOSPC) + "."};
      (void)!::ftruncate(fd_.get(), size_);
      return status;
    }
    done += static_cast<size_t>(n);
  }
  size_ += static_cast<off_t>(done);
  return Status::ok();
}

void RecordFile::close() { fd_.reset(); }

}  // namespace rueda::trace
