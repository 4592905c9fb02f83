#include "rueda/trace/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "rueda/trace/file_lock.h"

namespace rueda::trace {

std::string record_path(const std::string& timeline, Rank rank) {
  return timeline + ".rank" + std::to_string(rank) + ".rec";
}

Status write_whole(const std::string& path, std::span<const std::span<const RecordSlot>> parts) {
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))  // it would be replaced by a file
    return {Code::kUnavailable, "Cannot write " + path + ", because it is no regular file; name another."};
  const UniqueFd old(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
  if (old.is_open())
    if (Status status = lock_for_writing(old.get(), path); !status.is_ok()) return status;
  const std::string draft = path + ".part";
  RecordFile file;
  Status status = file.open(draft, false);
  if (!status.is_ok()) return status;  // perhaps another process writes it
  for (const std::span<const RecordSlot> part : parts)
    if (status.is_ok()) status = file.append(part);
  if (status.is_ok() && std::rename(draft.c_str(), path.c_str()) != 0)
    status = {Code::kUnavailable, "Cannot rename " + draft + ": " + std::strerror(errno) + "."};
  if (!status.is_ok()) ::unlink(draft.c_str());
  return status;
}

Status RecordFile::open(const std::string& path, bool goes_on) {
  close();
  const bool appends = goes_on && path == path_;
  Result<UniqueFd> opened = open_to_write(path, "record");
  if (!opened.is_ok()) return opened.status();
  UniqueFd fd = std::move(opened).value();
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) info = {};
  const bool is_as_left = appends && info.st_dev == device_ && info.st_ino == inode_ && info.st_size == size_;
  fd_ = std::move(fd);
  path_ = path;
  if (is_as_left) write_first(false);
  if (is_as_left && missing_ > 0) return Status::ok();
  const RecordSlot pause{};  // nothing was recorded meanwhile
  if (is_as_left) return write({&pause, 1});
  device_ = info.st_dev;
  inode_ = info.st_ino;
  size_ = 0;
  missing_ = 0;
  if (S_ISREG(info.st_mode) && ::ftruncate(fd_.get(), 0) != 0)
    return {Code::kUnavailable, "Cannot empty the record file " + path + ": " + std::strerror(errno) + "."};
  const RecordSlot first = first_slot();
  return write({&first, 1});
}

Status RecordFile::append(std::span<const RecordSlot> slots) {
  if (missing_ == 0) return write(slots);
  const RecordSlot gap{RecordSlotKind::kGap, 0, static_cast<uint16_t>(error_), 0, 0, missing_, 0};
  if (Status status = write({&gap, 1}); !status.is_ok()) return status;
  missing_ = 0;
  lose(0);
  return write(slots);
}

void RecordFile::lose(int64_t records) {
  missing_ += records;
  write_first(false);
}

void RecordFile::write_first(bool is_stopped) {
  RecordSlot first = first_slot();
  first.detail = is_stopped ? kStoppedFile : uint8_t{0};
  if (missing_ > 0) first.extra = static_cast<uint16_t>(error_);
  first.c = missing_;
  // Where this fails too, the file has ended without a word, and the log has the sentence of append().
  if (fd_.is_open()) (void)!::pwrite(fd_.get(), &first, sizeof first, 0);
}

bool RecordFile::has_room(size_t bytes) const {
  const int failed = ::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, size_, static_cast<off_t>(bytes));
  if (failed != 0) return errno == EOPNOTSUPP;  // only a write tells
  (void)!::ftruncate(fd_.get(), size_);
  return true;
}

Status RecordFile::write(std::span<const RecordSlot> slots) {
  const auto raw = std::as_bytes(slots);
  size_t done = 0;
  while (done < raw.size()) {
    const ssize_t n =
        ::pwrite(fd_.get(), raw.data() + done, raw.size() - done, size_ + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      error_ = n < 0 ? errno : ENOSPC;
      const Status status{Code::kUnavailable,
                          "Cannot write the record file " + path_ + ": " + std::strerror(error_) + "."};
      (void)!::ftruncate(fd_.get(), size_);
      return status;
    }
    done += static_cast<size_t>(n);
  }
  size_ += static_cast<off_t>(done);
  return Status::ok();
}

bool RecordFile::is_at(const std::string& path) const {
  struct stat info {};
  return is_open() && ::stat(path.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
}

void RecordFile::close() {
  write_first(true);
  fd_.reset();
}

}  // namespace rueda::trace
