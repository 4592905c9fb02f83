// Shared memory between ranks of one host and user: a byte ring per lane and direction, in anonymous memory
// that is handed over a UNIX socket after the handshake. Nothing has a name in the file system. Engine thread
// only.
#pragma once

#include <memory>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

struct ShmOptions {
  Identity identity;
  size_t ring_bytes = 1 << 20;  // per direction and lane; rounded up to a power of two, 4 KiB .. 1 GiB
  // Descriptors every peer gets with lane 0, after it has proved who it is. Borrowed as long as lanes come
  // up; every rank gives the same number, at most 7.
  std::vector<int> shared = {};
};

class ShmTransport : public Transport {
 public:
  // What the peer gave with lane 0, once; empty before that lane is up.
  virtual std::vector<UniqueFd> take_shared(Rank peer) = 0;
};

Result<std::unique_ptr<ShmTransport>> make_shm(ShmOptions options);

}  // namespace rueda::transport
