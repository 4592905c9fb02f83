// InfiniBand and RoCE through UCX, which is loaded when it is needed: the card moves the bytes, large
// messages without a copy. Never chosen by default; RUEDA_TRANSPORTS names it. Engine thread only.
#pragma once

#include <memory>
#include <string>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

struct UcxOptions {
  Identity identity;
  std::string bind_host = "127.0.0.1";  // numeric address to listen on; the peers prove themselves there
  Nanos peer_timeout = 30 * kSecond;    // a host that is silent for longer is lost
};

// Fails with one sentence if this host has no UCX that is new enough.
Result<std::unique_ptr<Transport>> make_ucx(UcxOptions options);

}  // namespace rueda::transport
