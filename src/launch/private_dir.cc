#include "launch/private_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <span>

#include "rueda/base/handshake.h"
#include "rueda/status/folder.h"
#include "rueda/status/token_file.h"
#include "rueda/store/hex.h"

namespace rueda::launch {
namespace {

constexpr std::string_view kPrefix = "rueda-agent-", kUnique = "XXXXXX";
constexpr time_t kOldSeconds = 60;  // longer than an agent takes from mkdtemp to flock

UniqueFd open_dir(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool is_ours_and_old(int dir) {
  struct stat about {};
  return fstat(dir, &about) == 0 && about.st_uid == geteuid() && (about.st_mode & 0777) == S_IRWXU &&
         time(nullptr) - about.st_mtime >= kOldSeconds;
}

bool holds_only_what_agents_write(const std::string& path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (name != "secret" && name != "stage" && name != "stopping" && !name.starts_with("news") &&
        !name.starts_with("result.") && !name.starts_with("metrics."))
      return false;
  }
  return !error;
}

}  // namespace

Result<PrivateDir> make_private_dir() {
  const char* given = getenv("TMPDIR");
  const std::string base = given != nullptr && *given == '/' ? given : "/tmp";
  sweep_private_dirs(base);
  PrivateDir made;
  made.path = fmt::format("{}/{}{}", base, kPrefix, kUnique);
  if (mkdtemp(made.path.data()) == nullptr)
    return Status(Code::kUnavailable,
                  fmt::format("cannot make a private directory in {}: {}; set TMPDIR to a writable directory",
                              base, std::strerror(errno)));
  made.lock = open_dir(made.path);
  if (made.lock.is_open())
    flock(made.lock.get(), LOCK_EX | LOCK_NB);  // on a file system without locks nothing is swept
  return made;
}

bool is_private_dir_name(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  return name.starts_with(kPrefix) && name.size() == kPrefix.size() + kUnique.size();
}

void remove_private_dir(const std::string& path) {
  if (const Result<Secret> secret = read_secret_file(path + "/secret"); secret.is_ok()) {
    const std::string token =
        store::to_hex(hmac_sha256(secret.value().key, std::as_bytes(std::span(status::kTokenLabel))));
    for (const std::string& folder : status::folders()) status::remove_token_files(folder, token);
  }
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
  status::remove_dead_sockets(status::folder_path());
}

void sweep_private_dirs(const std::string& base) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(base, error)) {
    if (!is_private_dir_name(entry.path().string())) continue;
    const UniqueFd dir = open_dir(entry.path().string());
    if (!dir.is_open() || !is_ours_and_old(dir.get()) || flock(dir.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (holds_only_what_agents_write(entry.path().string())) remove_private_dir(entry.path().string());
  }
}

}  // namespace rueda::launch
