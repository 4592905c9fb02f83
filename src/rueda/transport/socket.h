// Socket addresses and the few socket options that matter.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::transport {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] int family() const { return storage.ss_family; }
};

// "10.0.0.1:5000" or "[fe80::1]:5000"; numeric only, so that no name server is asked.
Result<SocketAddress> parse_tcp_address(std::string_view text);
Result<SocketAddress> make_tcp_address(const std::string& host, uint16_t port);
std::string format_tcp_address(const std::string& host, uint16_t port);
SocketAddress make_abstract_address(std::string_view name);  // of a UNIX socket without a file, ≤ 100 bytes

// Non-blocking, closed on exec.
Result<UniqueFd> open_listening(const SocketAddress& address, int backlog);
Result<uint16_t> port_of(int fd);
bool is_same_host(int connected_fd);  // TCP: both ends have the same address
// A dial to a free local port can meet itself: the kernel may draw that very port for the dialling end.
bool is_connected_to_itself(int connected_fd);

// Ends the connection even when a forked child still holds the descriptor, then closes it.
void hang_up(UniqueFd& fd);

}  // namespace rueda::transport
