// Bytes on their way to a socket that may be full.
#pragma once

#include <cstddef>

#include "rueda/base/bytes.h"

namespace rueda::store {

struct Outgoing {
  Bytes bytes;
  size_t sent = 0;

  [[nodiscard]] bool is_empty() const { return bytes.empty(); }
  // Sends what the socket takes now. False: the connection has broken.
  bool flush(int fd);
};

}  // namespace rueda::store
