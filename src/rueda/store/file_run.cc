#include "rueda/store/file_run.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

namespace rueda::store {
namespace {

constexpr Nanos kPause = 10 * kMillisecond;
constexpr std::string_view kRunPrefix = "run-";
constexpr const char* kLease = "/lease";

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
  return FileRun{std::move(store).value(), {std::move(lease), dir + "/" + name}};
}

void end_file_run(FileLease& lease) {
  if (lease.dir.empty()) return;
  std::error_code ignored;  // the next run removes what is left
  std::filesystem::remove_all(lease.dir, ignored);
  lease = {};
}

Result<FileRun> join_file_run(const std::string& dir, const std::string& job, Deadline deadline) {
  Result<std::unique_ptr<Store>> root = open_file_store(dir);
  if (!root.is_ok()) return root.status();
  while (true) {
    const Result<std::string> name = root.value()->try_get(current_key(job), deadline);
    if (!name.is_ok() && name.status().code != Code::kUnavailable) return name.status();
    if (name.is_ok() && name.value().starts_with(kRunPrefix) && is_held(dir + "/" + name.value())) {
      Result<std::unique_ptr<Store>> store = open_file_store(dir + "/" + name.value());
      if (!store.is_ok()) return store.status();
      return FileRun{std::move(store).value(), {}};
    }
    if (deadline.is_past())
      return Status(Code::kTimeout, "rank 0 of job '" + job + "' did not appear in the store at file://" +
                                        dir + " in time; is it running, and does it share this directory?");
    const timespec duration{0, kPause};
    nanosleep(&duration, nullptr);
  }
}

}  // namespace rueda::store
