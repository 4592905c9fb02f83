// The few calls of the store that wait, each with a deadline, and the system's resolver. Any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/socket.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::store {

// IPv4 first. Asks the system's resolver, which may take its own time.
Result<std::vector<SocketAddress>> resolve(const std::string& host, int port);

// kUnavailable: refused or unreachable; kTimeout: no answer.
Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline);
// Does not wait. kUnavailable if the port is taken or the address is not of this machine.
Result<UniqueFd> listen_on(const std::string& address, int port);

// kPeerLost: the connection broke; kTimeout: the deadline passed.
Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline);
Result<size_t> receive_some(int fd, std::span<std::byte> buffer, Deadline deadline);

}  // namespace rueda::store
