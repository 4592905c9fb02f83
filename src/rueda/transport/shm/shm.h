// Shared memory between ranks of one host and user: one byte ring per channel and direction, in anonymous
// memory that is passed over a UNIX socket after the handshake. Nothing has a name in the file system.
// Engine thread only.
#pragma once

#include <memory>

#include "rueda/base/status.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

struct ShmOptions {
  Identity identity;
  // The bytes of each ring of channel 0, rounded up to a power of two from 4 KiB to 1 GiB. Other channels
  // carry less and have an eighth of it, at least 4 KiB, because all of a ring becomes resident once it has
  // been written around.
  size_t ring_bytes = 1 << 20;
};

Result<std::unique_ptr<Transport>> make_shm(ShmOptions options);

}  // namespace rueda::transport
