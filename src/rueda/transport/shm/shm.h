// Shared memory between ranks of one host and user: a byte ring per lane and direction, in anonymous memory
// that is handed over a UNIX socket after the handshake. Nothing has a name in the file system. Engine thread
// only.
#pragma once

#include <memory>

#include "rueda/base/status.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

struct ShmOptions {
  Identity identity;
  size_t ring_bytes = 1 << 20;  // per direction and lane; rounded up to a power of two, 4 KiB .. 1 GiB
};

Result<std::unique_ptr<Transport>> make_shm(ShmOptions options);

}  // namespace rueda::transport
