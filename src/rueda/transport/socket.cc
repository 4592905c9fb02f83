#include "rueda/transport/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <utility>

namespace rueda::transport {
namespace {

Status fault(const std::string& what) {
  return {Code::kUnavailable, what + ": " + std::strerror(errno) + "."};
}

// The bytes of the IP address, or empty for another family.
std::string_view ip_bytes(const SocketAddress& address) {
  if (address.family() == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address.storage);
    return {reinterpret_cast<const char*>(&in.sin_addr), sizeof(in.sin_addr)};
  }
  if (address.family() == AF_INET6) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    return {reinterpret_cast<const char*>(&in6.sin6_addr), sizeof(in6.sin6_addr)};
  }
  return {};
}

// Both empty when the socket is not connected.
std::pair<SocketAddress, SocketAddress> ends_of(int fd) {
  SocketAddress mine, theirs;
  mine.size = theirs.size = sizeof(sockaddr_storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&mine.storage), &mine.size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&theirs.storage), &theirs.size) != 0)
    return {};
  return {mine, theirs};
}

}  // namespace

Result<SocketAddress> make_tcp_address(const std::string& host, uint16_t port) {
  SocketAddress address;
  auto& in = reinterpret_cast<sockaddr_in&>(address.storage);
  if (inet_pton(AF_INET, host.c_str(), &in.sin_addr) == 1) {
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    address.size = sizeof(sockaddr_in);
    return address;
  }
  auto& in6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  if (inet_pton(AF_INET6, host.c_str(), &in6.sin6_addr) == 1) {
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    address.size = sizeof(sockaddr_in6);
    return address;
  }
  return Status(Code::kInvalidArgument, "'" + host + "' is no numeric IPv4 or IPv6 address.");
}

Result<SocketAddress> parse_tcp_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  uint16_t port = 0;
  std::string_view host = text.substr(0, colon == std::string_view::npos ? 0 : colon);
  const std::string_view digits = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || port == 0)
    return Status(Code::kInvalidArgument, "'" + std::string(text) + "' is no address of the form host:port.");
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return make_tcp_address(std::string(host), port);
}

std::string format_tcp_address(const std::string& host, uint16_t port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

SocketAddress make_abstract_address(std::string_view name) {
  RUEDA_CHECK(name.size() <= 100, "the name of an abstract socket is too long");
  SocketAddress address;
  auto& un = reinterpret_cast<sockaddr_un&>(address.storage);
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path + 1, name.data(), name.size());  // the leading zero byte makes it abstract
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Result<UniqueFd> open_listening(const SocketAddress& address, int backlog) {
  UniqueFd fd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return fault("cannot open a socket");
  fd.close_on_fork();
  if (bind(fd.get(), address.get(), address.size) != 0) return fault("cannot bind a listening socket");
  if (listen(fd.get(), backlog) != 0) return fault("cannot listen on a socket");
  return fd;
}

Result<uint16_t> port_of(int fd) {
  SocketAddress address;
  address.size = sizeof(address.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0)
    return fault("cannot ask a socket for its port");
  if (address.family() == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in&>(address.storage).sin_port);
}

bool is_same_host(int connected_fd) {
  const auto [mine, theirs] = ends_of(connected_fd);
  return ip_bytes(mine) == ip_bytes(theirs) && !ip_bytes(mine).empty();
}

bool is_connected_to_itself(int connected_fd) {
  const auto [mine, theirs] = ends_of(connected_fd);
  return is_same_host(connected_fd) && mine.size == theirs.size &&
         std::memcmp(&mine.storage, &theirs.storage, mine.size) == 0;
}

void hang_up(UniqueFd& fd) {
  if (!fd.is_open()) return;
  shutdown(fd.get(), SHUT_RDWR);
  fd.reset();
}

}  // namespace rueda::transport
