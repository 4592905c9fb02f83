#include "rueda/store/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rueda/base/descriptors.h"

namespace rueda::store {
namespace {

Status unavailable(const std::string& why) { return {Code::kUnavailable, why}; }

// 1: ready, 0: deadline passed, -1: errno.
int wait_for(int fd, short events, Deadline deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  while (true) {
    const int ready = poll(&entry, 1, deadline.timeout_ms());
    if (ready >= 0 || errno != EINTR) return ready;
  }
}

void set_option(int fd, int level, int option) {
  const int on = 1;
  setsockopt(fd, level, option, &on, sizeof(on));
}

// The kernel may pick the port we dial as our own source port when nobody listens: TCP then connects to
// itself.
bool is_connected_to_itself(int fd) {
  SocketAddress mine, peer;
  mine.size = peer.size = sizeof(sockaddr_storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&mine.storage), &mine.size) != 0) return false;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.size) != 0) return false;
  return mine.size == peer.size && std::memcmp(&mine.storage, &peer.storage, mine.size) == 0;
}

}  // namespace

std::string SocketAddress::ip() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, text, sizeof(text));
  if (storage.ss_family == AF_INET6)
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr, text, sizeof(text));
  return text;
}

bool SocketAddress::is_loopback() const {
  if (storage.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr) >> 24 == 127;
  return storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
}

std::string host_and_port(const std::string& host, int port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool is_ip_literal(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

Result<std::vector<SocketAddress>> resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    return unavailable("host name '" + host + "' cannot be resolved on this machine: " + gai_strerror(error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
    addresses.push_back(address);
  }
  freeaddrinfo(found);
  std::ranges::stable_sort(addresses, {},
                           [](const SocketAddress& a) { return a.storage.ss_family != AF_INET; });
  return addresses;
}

Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open() && is_out_of_descriptors(errno)) return out_of_descriptors(errno);
  if (!fd.is_open()) return unavailable(std::string("no socket: ") + std::strerror(errno));
  fd.close_on_fork();
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY);
  int error = connect(fd.get(), address.get(), address.size) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) {
    if (wait_for(fd.get(), POLLOUT, deadline) == 0) return Status(Code::kTimeout, "no answer");
    socklen_t size = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) return unavailable(std::strerror(error));
  if (is_connected_to_itself(fd.get())) return unavailable("nobody listens there");
  return fd;
}

Result<UniqueFd> listen_on(const std::string& address, int port) {
  if (!is_ip_literal(address))
    return Status(Code::kInvalidArgument, "'" + address + "' is no IP address to listen on");
  const Result<std::vector<SocketAddress>> resolved = resolve(address, port);
  if (!resolved.is_ok()) return resolved.status();
  const SocketAddress& where = resolved.value().front();
  const std::string text = host_and_port(address, port);
  UniqueFd fd(socket(where.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return unavailable("no socket for " + text + ": " + std::strerror(errno));
  fd.close_on_fork();
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR);
  if (where.storage.ss_family == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY);
  if (bind(fd.get(), where.get(), where.size) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE)
      return unavailable("port " + std::to_string(port) + " of " + address +
                         " is in use by another process; name another port or end that process");
    return unavailable("cannot listen on " + text + ": " + std::strerror(errno));
  }
  return fd;
}

int local_port(int fd) {
  SocketAddress mine;
  mine.size = sizeof(mine.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&mine.storage), &mine.size) != 0) return 0;
  if (mine.storage.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&mine.storage)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&mine.storage)->sin_port);
}

Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (wait_for(fd, POLLOUT, deadline) == 0) return {Code::kTimeout, "the peer does not read"};
    } else if (errno != EINTR) {
      return {Code::kPeerLost, std::strerror(errno)};
    }
  }
  return Status::ok();
}

Result<size_t> receive_some(int fd, std::span<std::byte> buffer, Deadline deadline) {
  while (true) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got > 0) return static_cast<size_t>(got);
    if (got == 0) return Status(Code::kPeerLost, "the peer closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (wait_for(fd, POLLIN, deadline) == 0) return Status(Code::kTimeout, "the peer sends nothing");
    } else if (errno != EINTR) {
      return Status(Code::kPeerLost, std::strerror(errno));
    }
  }
}

}  // namespace rueda::store
