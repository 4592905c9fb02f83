// How fast the bytes of a connection arrive while its reader waits for them. It counts from a moment at which
// a part of a message was read and the socket was empty: the sender has the rest, so the network, or one of
// the two processes, is what the reader waits for. It ends with a message after which nothing is there.
// Everything that was read by then has arrived meanwhile, so the connection is at least as fast as bytes
// divided by time; late acknowledgements and idle times count for nothing. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rueda/base/clock.h"

namespace rueda::transport {

class Arrivals {
 public:
  // Bytes were read; is_empty: and there were no more. before, after: the times around the call.
  void read(size_t bytes, bool is_empty, Nanos before, Nanos after) {
    if (since_ != 0) {
      pending_ += static_cast<int64_t>(bytes);
      last_ = after;
    } else if (is_empty) {
      since_ = before;
      last_ = before;
    }
  }
  // The last message was read to its end, and no byte of the next one is there or is asked for.
  void end() {
    bytes_ += pending_;
    time_ += last_ - since_;
    since_ = last_ = 0;
    pending_ = 0;
  }
  [[nodiscard]] bool is_on() const { return since_ != 0; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] Nanos time() const { return time_; }

 private:
  Nanos since_ = 0, last_ = 0;  // 0: it does not count
  int64_t pending_ = 0;
  int64_t bytes_ = 0;
  Nanos time_ = 0;
};

}  // namespace rueda::transport
