// A TCP port at which a process answers `GET /metrics`, and the thread that answers. Everybody on this host,
// and with another address than the loopback also on the network, can reach it: each request must show a
// token.
//
//   bounds    kMaxCallers connections, of which the oldest gives way to a new one; kCallerTime for each;
//             kMaxHeadBytes of a request
//
// A child of fork() has neither the port nor the thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rueda/base/clock.h"
#include "rueda/base/socket.h"
#include "rueda/base/status.h"

namespace rueda::status {

inline constexpr size_t kMaxCallers = 8;
inline constexpr Nanos kCallerTime = 5 * kSecond;  // for the request, the reply and the end of the connection

class MetricsPort {
 public:
  // Called on the thread of the port, once per request that shows the token.
  using Text = std::function<std::string()>;
  // Fails if the port is in use, or the address is not of this host.
  static Result<std::unique_ptr<MetricsPort>> open(const SocketAddress& at, std::string token, Text text,
                                                   Nanos caller_time = kCallerTime);
  virtual ~MetricsPort() = default;  // closes the port
  [[nodiscard]] virtual uint16_t port() const = 0;
};

}  // namespace rueda::status
