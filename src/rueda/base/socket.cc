#include "rueda/base/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "rueda/base/check.h"
#include "rueda/base/descriptors.h"

namespace rueda {
namespace {

constexpr int kSocketFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

Status unavailable(const std::string& what) { return {Code::kUnavailable, what}; }

// What the error says, and what it usually means to somebody who has to mend it.
Status cannot_connect(int error) {
  const std::string text = std::strerror(error);
  switch (error) {
    case ECONNREFUSED:
      return unavailable(text +
                         " (nobody listens there: the process has ended, or the address is that of "
                         "another machine or container)");
    case EHOSTUNREACH:
    case ENETUNREACH:
      return unavailable(text +
                         " (this machine does not reach that address; RUEDA_INTERFACE chooses the "
                         "network that all hosts share)");
    case ETIMEDOUT:
      return unavailable(text + " (a firewall drops the packets, or nobody has that address)");
    default:
      return unavailable(text);
  }
}

// The same for an address on which a process is to listen.
std::string what_to_do(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return "; a policy of this host forbids it (seccomp, SELinux, a sandbox): allow it, or choose another "
             "network with RUEDA_INTERFACE";
    case EADDRNOTAVAIL:
      return "; this host has no such address: RUEDA_INTERFACE chooses one that it has";
    case EADDRINUSE:
      return "; no port is free there: end processes that hold them, or widen net.ipv4.ip_local_port_range";
    default:
      return "";
  }
}

const sockaddr_in& as_ipv4(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& as_ipv6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

// The kernel may draw the very port that is dialled, where nobody listens, for the dialling end: TCP then
// connects to itself.
bool is_connected_to_itself(int fd) {
  const SocketAddress mine = own_address(fd), peer = peer_address(fd);
  return is_same_host(fd) && mine.port() == peer.port();
}

}  // namespace

std::string SocketAddress::ip() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (family() == AF_INET) inet_ntop(AF_INET, &as_ipv4(*this).sin_addr, text, sizeof(text));
  if (family() == AF_INET6) inet_ntop(AF_INET6, &as_ipv6(*this).sin6_addr, text, sizeof(text));
  return text;
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(as_ipv4(*this).sin_port);
  return family() == AF_INET6 ? ntohs(as_ipv6(*this).sin6_port) : 0;
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) return ntohl(as_ipv4(*this).sin_addr.s_addr) >> 24 == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&as_ipv6(*this).sin6_addr);
}

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
    return Status(Code::kInvalidArgument,
                  "'" + std::string(text) + "' is not an address of the form host:port.");
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return make_tcp_address(std::string(host), port);
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

std::string host_and_port(const std::string& host, int port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool is_ip_literal(const std::string& host) { return make_tcp_address(host, 0).is_ok(); }

SocketAddress own_address(int fd) {
  SocketAddress mine;
  mine.size = sizeof(mine.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&mine.storage), &mine.size) != 0) return {};
  return mine;
}

SocketAddress peer_address(int fd) {
  SocketAddress peer;
  peer.size = sizeof(peer.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.size) != 0) return {};
  return peer;
}

ucred peer_process(int connected_fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connected_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return {.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  return peer;
}

bool is_same_host(int connected_fd) {
  const std::string mine = own_address(connected_fd).ip();
  return !mine.empty() && mine == peer_address(connected_fd).ip();
}

Result<UniqueFd> open_socket(int family) {
  UniqueFd fd(socket(family, SOCK_STREAM | kSocketFlags, 0));
  if (!fd.is_open() && is_out_of_descriptors(errno)) return out_of_descriptors(errno);
  if (!fd.is_open()) return unavailable(std::string("cannot open a socket: ") + std::strerror(errno));
  fd.close_on_fork();
  return fd;
}

Result<UniqueFd> open_listening(const SocketAddress& address, int backlog) {
  Result<UniqueFd> opened = open_socket(address.family());
  if (!opened.is_ok()) return opened;
  const int fd = opened.value().get();
  // Lingering connections of an earlier listener keep its port, unless that listener and this one say so.
  if (address.family() != AF_UNIX) set_option(fd, SOL_SOCKET, SO_REUSEADDR);
  if (address.family() == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY);
  if (bind(fd, address.get(), address.size) == 0 && listen(fd, backlog) == 0) return opened;
  const int error = errno;
  if (error == EADDRINUSE && address.port() != 0)
    return unavailable("port " + std::to_string(address.port()) + " of " + address.ip() +
                       " is in use by another process; name another port or end that process");
  const std::string ip = address.ip();
  return unavailable("cannot listen on " +
                     (ip.empty() ? "a local socket" : host_and_port(ip, address.port())) + ": " +
                     std::strerror(error) + what_to_do(error));
}

UniqueFd accept_caller(int listening_fd) {
  UniqueFd fd(accept4(listening_fd, nullptr, nullptr, kSocketFlags));
  if (fd.is_open()) fd.close_on_fork();
  return fd;
}

Result<bool> begin_connecting(int fd, const SocketAddress& address) {
  if (connect(fd, address.get(), address.size) == 0) return true;
  if (errno == EINPROGRESS || errno == EINTR) return false;
  return cannot_connect(errno);
}

Status connection_result(int fd) {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return cannot_connect(error);
  if (is_connected_to_itself(fd)) return unavailable("nobody listens there");
  return Status::ok();
}

void set_option(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

void hang_up(UniqueFd& fd) {
  if (!fd.is_open()) return;
  shutdown(fd.get(), SHUT_RDWR);
  fd.reset();
}

}  // namespace rueda
