#include "rueda/status/folder.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "rueda/base/clock.h"
#include "rueda/base/process.h"
#include "rueda/base/socket.h"

namespace rueda::status {
namespace {

Status trouble(const std::string& doing, const std::string& path, int error) {
  return {Code::kUnavailable, "cannot " + doing + " " + path + ": " + std::strerror(error) + "."};
}

// A connection, or errno.
Result<UniqueFd> connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return trouble("reach", path, ENAMETOOLONG);
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return trouble("open a socket for", path, errno);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    Status status = trouble("reach", path, error);
    if (error == ECONNREFUSED) status.code = Code::kPeerLost;  // nobody listens there any more
    return status;
  }
  return fd;
}

}  // namespace

std::string folder_path() {
  const char* const given = std::getenv("XDG_RUNTIME_DIR");
  return folder_path(given != nullptr ? given : "");
}

std::vector<std::string> folders() {
  const std::string mine = folder_path();
  const std::string with_session = folder_path("/run/user/" + std::to_string(geteuid()));
  const std::string without = folder_path("");
  if (mine == without) return {mine, with_session};
  if (mine == with_session) return {mine, without};
  return {mine};
}

std::string folder_path(std::string_view runtime_dir) {
  if (runtime_dir.starts_with('/')) return std::string(runtime_dir) + "/rueda";
  return "/tmp/rueda-" + std::to_string(geteuid());
}

Status make_folder(const std::string& path) {
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) return trouble("make the folder", path, errno);
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) return trouble("examine the folder", path, errno);
  if (!S_ISDIR(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 0077) != 0)
    return {Code::kPermissionDenied, path + " is not a folder that only this user may enter; remove it."};
  return Status::ok();
}

std::vector<std::string> sockets_in(const std::string& path, std::string_view ending) {
  std::vector<std::string> found;
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != geteuid()) return found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string name = entry.path().string();
    if (!name.ends_with(ending)) continue;
    const Result<UniqueFd> fd = connect_to(name);
    if (fd.is_ok() || fd.status().code != Code::kPeerLost)
      found.push_back(name);
    else
      unlink(name.c_str());  // a name is given only once, so nobody else can have it by now
  }
  std::sort(found.begin(), found.end());
  return found;
}

void remove_dead_sockets(const std::string& path) {
  for (const std::string_view ending : {kProcessSocket, kLauncherSocket}) (void)sockets_in(path, ending);
}

// Containers that share /tmp may have equal process ids.
std::string socket_name() {
  std::random_device random;
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "%d-%08x", static_cast<int>(getpid()), random());
  return name.data();
}

int pid_behind(const std::string& socket) {
  const Result<UniqueFd> fd = connect_to(socket);
  return fd.is_ok() ? peer_process(fd.value().get()).pid : 0;
}

Result<UniqueFd> begin_to_ask(const std::string& socket, const std::string& what) {
  Result<UniqueFd> fd = connect_to(socket);
  if (!fd.is_ok()) return fd;
  if (peer_process(fd.value().get()).uid != geteuid())
    return Status(Code::kPermissionDenied, "the process behind " + socket + " belongs to another user.");
  const std::string request = what + "\n";
  if (send(fd.value().get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size()))
    return trouble("ask", socket, errno);
  return fd;
}

Result<Reply> ask(const std::string& socket, const std::string& what, int timeout_ms, size_t max_bytes) {
  const Result<UniqueFd> fd = begin_to_ask(socket, what);
  if (!fd.is_ok()) return fd.status();
  const Deadline deadline = Deadline::after(timeout_ms * kMillisecond);
  Reply reply{.text = {}, .pid = peer_process(fd.value().get()).pid};
  while (reply.text.size() <= max_bytes) {
    pollfd polled{.fd = fd.value().get(), .events = POLLIN, .revents = 0};
    const int ready = poll(&polled, 1, deadline.timeout_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0)
      return Status(Code::kTimeout, "the process behind " + socket + " did not answer within " +
                                        std::to_string(timeout_ms) + " ms; " +
                                        why_no_answer(look_at_process(reply.pid, 0).state, reply.pid) + ".");
    std::array<char, 65'536> piece{};
    const ssize_t got = recv(fd.value().get(), piece.data(), piece.size(), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return trouble("read from", socket, errno);
    if (got == 0) return reply;
    reply.text.append(piece.data(), static_cast<size_t>(got));
  }
  return Status(Code::kInvalidArgument, "the answer from " + socket + " is too long.");
}

}  // namespace rueda::status
