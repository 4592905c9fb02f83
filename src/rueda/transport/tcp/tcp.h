// TCP between ranks: one non-blocking connection per channel, driven by the caller's progress().
// Engine thread only.
#pragma once

#include <memory>
#include <string>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

struct TcpOptions {
  Identity identity;
  std::string bind_host = "127.0.0.1";  // numeric IPv4 or IPv6 address to listen on
  uint16_t bind_port = 0;               // 0 = chosen by the kernel
  std::string advertised_host = "";     // numeric; empty = bind_host. Needed if bind_host is a wildcard.
  size_t bytes_per_call = 256 << 10;    // most that one system call moves: keeps the bytes in the L2 cache
  Nanos peer_timeout = 30 * kSecond;    // an outage that is shorter is survived (host_silence.h)
};

Result<std::unique_ptr<Transport>> make_tcp(TcpOptions options);

}  // namespace rueda::transport
