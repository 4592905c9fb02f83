#include "rueda/store/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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

}  // namespace

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
  std::ranges::stable_sort(addresses, {}, [](const SocketAddress& a) { return a.family() != AF_INET; });
  return addresses;
}

Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline) {
  Result<UniqueFd> opened = open_socket(address.family());
  if (!opened.is_ok()) return opened;
  const int fd = opened.value().get();
  set_option(fd, IPPROTO_TCP, TCP_NODELAY);
  const Result<bool> begun = begin_connecting(fd, address);
  if (!begun.is_ok()) return begun.status();
  if (!begun.value() && wait_for(fd, POLLOUT, deadline) == 0) return Status(Code::kTimeout, "no answer");
  if (Status status = connection_result(fd); !status.is_ok()) return status;
  return opened;
}

Result<UniqueFd> listen_on(const std::string& address, int port) {
  const Result<SocketAddress> where = make_tcp_address(address, static_cast<uint16_t>(port));
  if (!where.is_ok()) return where.status();
  return open_listening(where.value(), SOMAXCONN);
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
