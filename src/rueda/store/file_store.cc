// A store in a directory that all ranks share, local or on NFS. Each key is one file, which is replaced by
// rename(2), so that a reader sees a whole value or none. Counters are guarded by flock(2), which Linux
// forwards to NFS servers. Only the permissions of the directory protect it, so a directory that others may
// write to is refused.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "rueda/base/bytes.h"
#include "rueda/base/sleep.h"
#include "rueda/base/unique_fd.h"
#include "rueda/store/hex.h"
#include "rueda/store/key_values.h"
#include "rueda/store/store.h"

namespace rueda::store {
namespace {

constexpr Nanos kFirstFilePause = kMillisecond / 2;
constexpr Nanos kLongestFilePause =
    20 * kMillisecond;                 // 50 lookups per second and rank: not too many for NFS
constexpr size_t kNamedKeyBytes = 80;  // 2 + 160 + 1 + 64 characters stay below NAME_MAX (255)
constexpr std::string_view kFilePrefix = "k.";
constexpr std::string_view kNameSalt = "rueda file store";  // the digest only distinguishes long names

std::string errno_text() { return std::strerror(errno); }

// Each pause is twice as long, from kFirstFilePause to kLongestFilePause, but none goes beyond the deadline.
class Backoff {
 public:
  explicit Backoff(Deadline deadline) : deadline_(deadline) {}
  // Returns false if the deadline has passed.
  bool pause() {
    const Nanos left = deadline_.when() - monotonic_now();
    if (left <= 0) return false;
    sleep_for(std::min(next_, left));
    next_ = std::min(2 * next_, kLongestFilePause);
    return true;
  }

 private:
  Deadline deadline_;
  Nanos next_ = kFirstFilePause;
};

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string file_name_of(std::string_view key) {
  std::string name = std::string(kFilePrefix) + to_hex(bytes_of(key.substr(0, kNamedKeyBytes)));
  if (key.size() > kNamedKeyBytes) name += "." + to_hex(hmac_sha256(bytes_of(kNameSalt), bytes_of(key)));
  return name;
}

Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return {Code::kUnavailable, errno_text()};
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return Status::ok();
}

class FileStore final : public Store {
 public:
  explicit FileStore(std::string dir) : dir_(std::move(dir)) {}

  Status set(std::string_view key, std::string_view value, Deadline) override {
    if (Status status = check_value(key, value); !status.is_ok()) return status;
    return replace(key, value);
  }

  Result<std::string> get(std::string_view key, Deadline deadline) override {
    if (Status status = check_key(key); !status.is_ok()) return status;
    Backoff backoff(deadline);
    while (true) {
      const Result<std::optional<std::string>> value = read(file_name_of(key), key);
      if (!value.is_ok()) return value.status();
      if (value.value()) return *value.value();
      if (is_dir_gone()) return fault("wait for key '" + std::string(key) + "'", "the directory was removed");
      if (!backoff.pause()) return key_timeout(key, description());
    }
  }

  Result<std::string> try_get(std::string_view key, Deadline) override {
    if (Status status = check_key(key); !status.is_ok()) return status;
    const Result<std::optional<std::string>> value = read(file_name_of(key), key);
    if (!value.is_ok()) return value.status();
    if (!value.value()) return key_absent(key, description());
    return *value.value();
  }

  Result<int64_t> add(std::string_view key, int64_t amount, Deadline deadline) override {
    if (Status status = check_key(key); !status.is_ok()) return status;
    const Result<UniqueFd> lock = take_lock(key, deadline);
    if (!lock.is_ok()) return lock.status();
    const Result<std::optional<std::string>> text = read(file_name_of(key), key);
    if (!text.is_ok()) return text.status();
    Result<int64_t> sum = add_to_text(key, text.value(), amount);
    if (!sum.is_ok()) return sum;
    if (Status status = replace(key, std::to_string(sum.value())); !status.is_ok()) return status;
    return sum;
  }

  Result<std::string> compare_and_set(std::string_view key, std::string_view expected, std::string_view value,
                                      Deadline deadline) override {
    if (Status status = check_both(key, expected, value); !status.is_ok()) return status;
    const Result<UniqueFd> lock = take_lock(key, deadline);
    if (!lock.is_ok()) return lock.status();
    const Result<std::optional<std::string>> old = read(file_name_of(key), key);
    if (!old.is_ok()) return old.status();
    if (old.value().value_or("") != expected) return old.value().value_or("");
    if (Status status = replace(key, value); !status.is_ok()) return status;
    return std::string(value);
  }

  Status remove_prefix(std::string_view prefix, Deadline) override {
    // A file name contains the first bytes of its key. Only for a longer prefix must the files be read.
    const std::string name_prefix =
        std::string(kFilePrefix) + to_hex(bytes_of(prefix.substr(0, kNamedKeyBytes)));
    std::error_code error;
    for (std::filesystem::directory_iterator at(dir_, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename();
      if (!name.starts_with(name_prefix)) continue;
      if (prefix.size() > kNamedKeyBytes && !key_of(name).starts_with(prefix)) continue;
      unlink(path(name).c_str());
    }
    if (error) return fault("list", error.message());
    return Status::ok();
  }

  [[nodiscard]] std::string description() const override { return "file://" + dir_; }

 private:
  [[nodiscard]] std::string path(std::string_view name) const { return dir_ + "/" + std::string(name); }

  [[nodiscard]] Status fault(std::string_view what, std::string_view why) const {
    return {Code::kUnavailable,
            "cannot " + std::string(what) + " in the store at " + description() + ": " + std::string(why)};
  }

  [[nodiscard]] bool is_dir_gone() const { return access(dir_.c_str(), F_OK) != 0; }

  // The layout of a file: the key with its length, then the value.
  Status replace(std::string_view key, std::string_view value) {
    ByteWriter whole;
    whole.put_string(key);
    whole.put_raw(bytes_of(value));
    // mkstemp creates the file with mode 0600 and a name that no other host uses.
    std::string temporary = path(".new.XXXXXX");
    const UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
    if (!fd.is_open()) return fault("write key '" + std::string(key) + "'", errno_text());
    const std::string_view text(reinterpret_cast<const char*>(whole.bytes().data()), whole.bytes().size());
    if (Status status = write_all(fd.get(), text); !status.is_ok()) {
      unlink(temporary.c_str());
      return fault("write key '" + std::string(key) + "'", status.why);
    }
    if (rename(temporary.c_str(), path(file_name_of(key)).c_str()) != 0) {
      const std::string why = errno_text();
      unlink(temporary.c_str());
      return fault("rename key '" + std::string(key) + "'", why);
    }
    return Status::ok();
  }

  // Empty if there is no such file. NFS clients remember that a name is absent; opening the directory makes
  // them ask the server again.
  Result<std::optional<std::string>> read(const std::string& name, std::string_view key) const {
    const UniqueFd fresh(open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const UniqueFd fd(open(path(name).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.is_open() && (errno == ENOENT || errno == ESTALE)) return std::optional<std::string>();
    if (!fd.is_open()) return fault("read key '" + std::string(key) + "'", errno_text());
    const Result<Bytes> whole = read_whole(fd.get());
    if (!whole.is_ok()) return fault("read key '" + std::string(key) + "'", whole.status().why);
    ByteReader reader(whole.value());
    const std::string stored = reader.get_string(kMaxStoreKeyBytes);
    if (!reader.is_ok() || stored != key)
      return fault("read key '" + std::string(key) + "'", "file " + name + " was not written by rueda");
    return std::optional<std::string>(
        std::string(reinterpret_cast<const char*>(whole.value().data()) + sizeof(uint32_t) + stored.size(),
                    whole.value().size() - sizeof(uint32_t) - stored.size()));
  }

  static Result<Bytes> read_whole(int fd) {
    Bytes whole;
    size_t used = 0;
    while (true) {
      whole.resize(used + 65'536);
      const ssize_t got = ::read(fd, whole.data() + used, whole.size() - used);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Status(Code::kUnavailable, errno_text());
      used += static_cast<size_t>(got);
      whole.resize(used);
      if (got == 0) return whole;
      if (used > sizeof(uint32_t) + kMaxStoreKeyBytes + kMaxStoreValueBytes)
        return Status(Code::kUnavailable, "the file is longer than any value");
    }
  }

  [[nodiscard]] std::string key_of(const std::string& name) const {
    const UniqueFd fd(open(path(name).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.is_open()) return {};
    const Result<Bytes> whole = read_whole(fd.get());
    if (!whole.is_ok()) return {};
    ByteReader reader(whole.value());
    return reader.get_string(kMaxStoreKeyBytes);
  }

  // The lock ends with the descriptor, even if its holder is killed.
  Result<UniqueFd> take_lock(std::string_view key, Deadline deadline) const {
    UniqueFd fd(open(path(".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd.is_open()) return fault("lock key '" + std::string(key) + "'", errno_text());
    Backoff backoff(deadline);
    while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR)
        return fault("lock key '" + std::string(key) + "'", errno_text());
      if (!backoff.pause())
        return Status(Code::kTimeout, "the lock for key '" + std::string(key) + "' of the store at " +
                                          description() + " was not free in time; who holds " +
                                          path(".lock") + "?");
    }
    return fd;
  }

  std::string dir_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_file_store(const std::string& dir) {
  if (dir.empty() || dir.front() != '/')
    return Status(
        Code::kInvalidArgument,
        "the directory of a file store must be an absolute path, as in file:///scratch/job1, not '" + dir +
            "'");
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST)
    return Status(Code::kUnavailable, "cannot make the store directory " + dir + ": " + errno_text());
  struct stat info {};
  if (stat(dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return Status(Code::kUnavailable, "the store directory " + dir + " is not a directory");
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 || (info.st_uid != geteuid() && info.st_uid != 0))
    return Status(Code::kPermissionDenied,
                  "the store directory " + dir +
                      " is writable by others; name a directory that only you may write "
                      "(chmod 700)");
  return std::unique_ptr<Store>(std::make_unique<FileStore>(dir));
}

}  // namespace rueda::store
