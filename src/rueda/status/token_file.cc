#include "rueda/status/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "rueda/base/unique_fd.h"

namespace rueda::status {
namespace {

constexpr std::string_view kBegin = "metrics-", kEnd = ".token";

Status token_trouble(const std::string& path, const std::string& why) {
  return {Code::kUnavailable, "cannot write the token for metrics to " + path + ": " + why};
}

Status unusable(const std::string& path, const std::string& why) {
  return {Code::kInvalidArgument, "the token for metrics in " + path + " cannot be used: " + why};
}

constexpr size_t kLeastToken = 32, kMostToken = 256;  // characters
constexpr mode_t kAnyWrite = S_IWUSR | S_IWGRP | S_IWOTH;

}  // namespace

Result<std::string> given_token(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!fd.is_open() || fstat(fd.get(), &about) != 0) return std::string();
  if (!S_ISREG(about.st_mode) || (about.st_mode & kAnyWrite) != 0) return std::string();
  if ((about.st_uid != 0 && about.st_uid != geteuid()) || (about.st_mode & S_IRWXO) != 0)
    return unusable(path, "others may read it, or it is another user's; run chmod 400 or 440 on it");
  std::string text(kMostToken + 2, '\0');
  const ssize_t got = pread(fd.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  const bool is_word =
      std::ranges::all_of(text, [](unsigned char letter) { return letter > ' ' && letter < 0x7f; });
  if (!is_word || text.size() < kLeastToken || text.size() > kMostToken)
    return unusable(path, "a token has 32 to 256 characters without spaces");
  return text;
}

Status write_token_file(const std::string& path, const std::string& token) {
  // O_NONBLOCK, so that a FIFO in its place cannot block the start of a job.
  const UniqueFd fd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR));
  if (!fd.is_open()) return token_trouble(path, std::strerror(errno));
  struct stat about {};
  if (fstat(fd.get(), &about) != 0) return token_trouble(path, std::strerror(errno));
  if (!S_ISREG(about.st_mode) || about.st_uid != geteuid())
    return token_trouble(path, "it is not a regular file of this user");
  if ((about.st_mode & (S_IWGRP | S_IRWXO)) != 0)
    return token_trouble(path, "others may read or write it; run chmod 600 or 640 on it");
  // In place, because a new file would lose the group that may read this one. All tokens are equally long, so
  // no reader sees more than one or the other.
  const std::string text = token + "\n";
  if (pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ftruncate(fd.get(), static_cast<off_t>(text.size())) != 0)
    return token_trouble(path, std::strerror(errno));
  return Status::ok();
}

void remove_token_file(const std::string& path, const std::string& token) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  std::string text(token.size() + 2, '\0');
  if (!fd.is_open() || pread(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(token.size() + 1))
    return;
  if (text.starts_with(token + "\n")) unlink(path.c_str());
}

std::string token_file_path(const std::string& folder, int64_t port) {
  return folder + "/" + std::string(kBegin) + std::to_string(port) + std::string(kEnd);
}

void remove_token_files(const std::string& folder, const std::string& token) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kBegin) && name.ends_with(kEnd)) remove_token_file(entry.path().string(), token);
  }
}

}  // namespace rueda::status
