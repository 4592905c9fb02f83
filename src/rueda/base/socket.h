// Stream sockets as the store and the transports use them: numeric addresses, listening, accepting, dialling.
// Nothing here waits or asks a name server. Any thread.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] int family() const { return storage.ss_family; }
  [[nodiscard]] std::string ip() const;  // "10.0.0.1" or "::1"; empty for another family
  [[nodiscard]] uint16_t port() const;   // 0 for another family
  [[nodiscard]] bool is_loopback() const;
};

Result<SocketAddress> make_tcp_address(const std::string& host, uint16_t port);  // numeric host
Result<SocketAddress> parse_tcp_address(std::string_view text);  // "10.0.0.1:5000" or "[fe80::1]:5000"
SocketAddress make_abstract_address(std::string_view name);  // of a UNIX socket without a file, ≤ 100 bytes
std::string host_and_port(const std::string& host, int port);  // brackets around IPv6 addresses
bool is_ip_literal(const std::string& host);

SocketAddress own_address(int fd);    // of size 0: the socket has none
SocketAddress peer_address(int fd);   // the same: it is not connected
bool is_same_host(int connected_fd);  // TCP: both ends have the same address
// The process at the other end of a UNIX socket: its pid is 0 in another pid namespace; its uid is -1 if
// Linux does not say.
ucred peer_process(int connected_fd);

// All sockets made here are non-blocking, closed on exec, and closed in forked children.

// Fails where a later attempt would fail as well.
Result<UniqueFd> open_socket(int family);
// kUnavailable: the port is taken, or the address is not of this machine.
Result<UniqueFd> open_listening(const SocketAddress& address, int backlog);
UniqueFd accept_caller(int listening_fd);  // closed: errno says why
// True: connected. False: under way; when the socket is writable, connection_result() tells.
Result<bool> begin_connecting(int fd, const SocketAddress& address);
Status connection_result(int fd);  // kUnavailable also for a socket that met itself

void set_option(int fd, int level, int option, int value = 1);
// Ends the connection even when a forked child still holds the descriptor, then closes it.
void hang_up(UniqueFd& fd);

// What a caller of a listening socket may cost before it has proved who it is.
inline constexpr Nanos kStrangerTime = 5 * kSecond;  // a loaded rank on a slow network still makes it
inline constexpr int kAcceptsPerRound = 64;          // garbage must not keep the others waiting

}  // namespace rueda
