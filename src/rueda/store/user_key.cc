#include "rueda/store/user_key.h"

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "rueda/store/job_id.h"

namespace rueda::store {
namespace {

constexpr const char* kInstead = "; set RUEDA_SECRET_FILE to a file of mode 0600 that all ranks can read";

std::string home_of_user() {
  std::array<char, 4'096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return {};
  return entry.pw_dir;
}

// link(2), unlike rename(2), fails if the name exists. A process that comes second then reads the key
// of the first.
Status make_key(const std::string& path) {
  const Result<Secret> fresh = make_secret();
  if (!fresh.is_ok()) return fresh.status();
  // A host name and a process number would not be unique, because containers share both.
  const Result<Secret> name = make_secret();
  if (!name.is_ok()) return name.status();
  const std::string draft = path + "." + to_hex(std::span(name.value().key).first(8));
  if (Status status = write_secret_file(draft, fresh.value()); !status.is_ok()) return status;
  const int error = link(draft.c_str(), path.c_str()) == 0 ? 0 : errno;
  unlink(draft.c_str());
  if (error == 0 || error == EEXIST) return Status::ok();
  return {Code::kUnavailable, "cannot make the key file " + path + ": " + std::strerror(error)};
}

}  // namespace

Result<std::string> user_key_path(const GetEnv& get_env) {
  const char* config = get_env("XDG_CONFIG_HOME");
  if (config != nullptr && config[0] == '/') return std::string(config) + "/rueda/key";
  const char* home = get_env("HOME");
  const std::string dir = home != nullptr && home[0] == '/' ? std::string(home) : home_of_user();
  if (!dir.empty()) return dir + "/.config/rueda/key";
  return Status(Code::kUnavailable, std::string("this user has no home directory for a key file") + kInstead);
}

Result<Secret> user_key(const std::string& path) {
  const std::filesystem::path dir = std::filesystem::path(path).parent_path();
  if (access(path.c_str(), F_OK) != 0) {
    std::error_code error;
    if (std::filesystem::create_directories(dir, error))
      std::filesystem::permissions(dir, std::filesystem::perms::owner_all, error);
    if (Status status = make_key(path); !status.is_ok()) return Status(status.code, status.why + kInstead);
  }
  return read_secret_file(path);
}

Secret secret_of_job(const Secret& key, const std::string& job) {
  const std::string label = "rueda job secret " + job;
  const auto mixed = hmac_sha256(key.key, std::as_bytes(std::span(label)));
  return {Bytes(mixed.begin(), mixed.end())};
}

}  // namespace rueda::store
