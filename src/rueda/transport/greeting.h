// A connection whose other end still has to prove who it is: a Handshake joined to a socket.
#pragma once

#include "rueda/base/clock.h"
#include "rueda/base/handshake.h"
#include "rueda/base/unique_fd.h"
#include "rueda/transport/poller.h"

namespace rueda::transport {

class Greeting {
 public:
  enum class State : uint8_t {
    kBusy,
    kDone,
    kHungUp,   // the other end went away before the end; a dialer may try again
    kRefused,  // one side turned the other down; why() tells
  };

  Greeting(UniqueFd fd, Handshake handshake, Nanos started);

  // Moves what can be moved without waiting.
  State advance();
  [[nodiscard]] const Status& why() const { return why_; }
  [[nodiscard]] Nanos started() const { return started_; }
  [[nodiscard]] bool has_greeted() const { return has_greeted_; }  // worth an answer already
  [[nodiscard]] const Introduction& introduction() const { return handshake_.introduction(); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  UniqueFd take_fd() { return std::move(fd_); }

  Watch watch;

 private:
  bool flush();  // false: the other end is gone
  UniqueFd fd_;
  Handshake handshake_;
  Nanos started_;
  Bytes unsent_;
  Status why_;
  bool has_greeted_ = false;
};

}  // namespace rueda::transport
