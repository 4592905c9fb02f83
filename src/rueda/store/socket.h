// The few TCP calls the store needs, each with a deadline. Any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <span>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::store {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] std::string ip() const;  // "10.0.0.1" or "::1"
  [[nodiscard]] bool is_loopback() const;
};

std::string host_and_port(const std::string& host, int port);  // brackets around IPv6 literals
bool is_ip_literal(const std::string& host);

// IPv4 first. Asks the system's resolver, which may take its own time.
Result<std::vector<SocketAddress>> resolve(const std::string& host, int port);

// kUnavailable: refused or unreachable; kTimeout: no answer.
Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline);
// Non-blocking. kUnavailable if the port is taken or the address is not of this machine.
Result<UniqueFd> listen_on(const std::string& address, int port);
int local_port(int fd);

// kPeerLost: the connection broke; kTimeout: the deadline passed.
Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);
Result<size_t> receive_some(int fd, std::span<std::byte> buffer, Deadline deadline);

}  // namespace rueda::store
