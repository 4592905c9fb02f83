#include "rueda/store/file_run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "rueda/base/process.h"
#include "rueda/base/sleep.h"

namespace rueda::store {
namespace {

constexpr Nanos kPause = 10 * kMillisecond;
constexpr std::string_view kRunPrefix = "run-";
constexpr const char* kLease = "/lease";
constexpr const char* kFailureRecord = "/failed";
constexpr Nanos kAgeError = 20 * kMillisecond;  // the kernel stamps files with the time of its last tick
// A process that begins within kSameStart after rank 0 has failed was probably started for that run too. It
// waits for another rank 0, which whoever starts the job again would start as well, for kNextRun.
constexpr Nanos kSameStart = 10 * kSecond, kNextRun = 20 * kSecond;

std::string current_key(const std::string& job) { return "current run of " + job; }

// On a file system without locks, every lock counts as held. The user must then give each run
// its own directory.
bool is_held(const std::string& run_dir) {
  const UniqueFd fd(open((run_dir + kLease).c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.is_open()) return false;
  return flock(fd.get(), LOCK_SH | LOCK_NB) != 0;
}

void remove_finished_runs(const std::string& dir) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().string().starts_with(kRunPrefix) || is_held(at->path())) continue;
    std::error_code ignored;  // another rank 0 may remove the same directories
    std::filesystem::remove_all(at->path(), ignored);
  }
}

Status fault(const std::string& what) {
  return {Code::kUnavailable, "cannot " + what + ": " + std::strerror(errno)};
}

Nanos changed_at(const struct stat& info) { return info.st_mtim.tv_sec * kSecond + info.st_mtim.tv_nsec; }

// Since the file was written, by the clock that stamps files in this directory.
std::optional<Nanos> age_of(const std::string& path, const std::string& dir) {
  std::string probe = dir + "/.new-clock.XXXXXX";
  const UniqueFd fd(mkostemp(probe.data(), O_CLOEXEC));
  if (!fd.is_open()) return std::nullopt;
  unlink(probe.c_str());
  struct stat now {
  }, then{};
  if (fstat(fd.get(), &now) != 0 || stat(path.c_str(), &then) != 0) return std::nullopt;
  return changed_at(now) - changed_at(then);
}

struct FailedRun {
  std::string why;
  Nanos before = 0;  // how long before this process began it failed; not positive: afterwards
};

std::optional<FailedRun> read_failure(const std::string& run_dir, const std::string& dir) {
  const std::string path = run_dir + kFailureRecord;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return std::nullopt;
  std::array<char, 4096> text{};
  const ssize_t size = read(fd.get(), text.data(), text.size());
  const std::optional<Nanos> age = age_of(path, dir);
  if (size <= 0 || !age) return std::nullopt;
  return FailedRun{std::string(text.data(), static_cast<size_t>(size)), *age + kAgeError - process_age()};
}

Status failed_there(const std::string& why) {
  return {Code::kUnavailable, "another rank could not initialize: " + why};
}

}  // namespace

Result<FileRun> begin_file_run(const std::string& dir, const std::string& job, Deadline deadline) {
  Result<std::unique_ptr<Store>> root = open_file_store(dir);
  if (!root.is_ok()) return root.status();
  // The lock is taken before the directory gets its final name, by which other processes recognise a run.
  std::string draft = dir + "/.new-XXXXXX";
  if (mkdtemp(draft.data()) == nullptr) return fault("make a directory in " + dir);
  UniqueFd lease(open((draft + kLease).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lease.is_open()) return fault("make " + draft + kLease);
  if (flock(lease.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return fault("lock " + draft + kLease);
  const std::string name = std::string(kRunPrefix) + draft.substr(draft.rfind('-') + 1);
  if (rename(draft.c_str(), (dir + "/" + name).c_str()) != 0) return fault("rename " + draft);
  Result<std::unique_ptr<Store>> store = open_file_store(dir + "/" + name);
  if (!store.is_ok()) return store.status();
  if (Status status = root.value()->set(current_key(job), name, deadline); !status.is_ok()) return status;
  remove_finished_runs(dir);
  return FileRun{std::move(store).value(), {std::move(lease), dir + "/" + name}, dir + "/" + name};
}

void end_file_run(FileLease& lease) {
  if (lease.dir.empty()) return;
  std::error_code ignored;  // the next run removes what is left
  std::filesystem::remove_all(lease.dir, ignored);
  lease = {};
}

bool is_run_over(const std::string& run_dir) { return !is_held(run_dir); }

void note_failed_run(const FileLease& lease, const std::string& why) {
  if (lease.dir.empty()) return;
  const std::string draft = lease.dir + kFailureRecord + ".new";
  const UniqueFd fd(open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.is_open() || write(fd.get(), why.data(), why.size()) != static_cast<ssize_t>(why.size())) return;
  rename(draft.c_str(),
         (lease.dir + kFailureRecord).c_str());  // without it, others wait until their deadline
}

void forget_failed_run(const FileLease& lease) {
  if (!lease.dir.empty()) unlink((lease.dir + kFailureRecord).c_str());
}

Result<FileRun> join_file_run(const std::string& dir, const std::string& job, Deadline deadline,
                              const Interrupted& is_interrupted) {
  Result<std::unique_ptr<Store>> root = open_file_store(dir);
  if (!root.is_ok()) return root.status();
  std::string dismissed;  // the last run that was over
  std::string probable;   // why it failed, if this process may have been started for it
  Deadline next_run = Deadline::at(0);
  while (true) {
    const Result<std::string> name = root.value()->try_get(current_key(job), deadline);
    if (!name.is_ok() && name.status().code != Code::kUnavailable) return name.status();
    if (name.is_ok() && name.value().starts_with(kRunPrefix) && is_held(dir + "/" + name.value())) {
      Result<std::unique_ptr<Store>> store = open_file_store(dir + "/" + name.value());
      if (!store.is_ok()) return store.status();
      return FileRun{std::move(store).value(), {}, dir + "/" + name.value()};
    }
    if (name.is_ok() && name.value().starts_with(kRunPrefix) && name.value() != dismissed) {
      dismissed = name.value();
      const std::optional<FailedRun> failed = read_failure(dir + "/" + dismissed, dir);
      if (failed && failed->before <= 0) return failed_there(failed->why);
      probable = failed && failed->before <= kSameStart ? failed->why : "";
      next_run = Deadline::after(kNextRun);
    }
    if (!probable.empty() && (next_run.is_past() || deadline.is_past())) return failed_there(probable);
    if (is_set(is_interrupted)) return interrupted_status();
    if (deadline.is_past())
      return Status(Code::kTimeout, "rank 0 of job '" + job + "' did not appear in the store at file://" +
                                        dir + " in time; is it running, and does it share this directory?");
    sleep_for(kPause);
  }
}

}  // namespace rueda::store
