// Shared memory between ranks of one host and user: a byte ring per channel and direction, in anonymous
// memory that is handed over a UNIX socket after the handshake. Nothing has a name in the file system. Engine
// thread only.
#pragma once

#include <memory>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

struct ShmOptions {
  Identity identity;
  // Of channel 0, per direction; rounded up to a power of two, 4 KiB .. 1 GiB. Other channels, which carry
  // less, have an eighth, at least 4 KiB: a ring becomes resident as it is written round and round.
  size_t ring_bytes = 1 << 20;
  // Descriptors every peer gets with channel 0, after it has proved who it is. Borrowed as long as channels
  // come up; every rank gives the same number, at most 7.
  std::vector<int> shared = {};
};

Result<std::unique_ptr<Transport>> make_shm(ShmOptions options);

}  // namespace rueda::transport
