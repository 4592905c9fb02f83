// A connection during its handshake: a Handshake joined to a socket. The other end still has to prove
// who it is.
#pragma once

#include "rueda/base/clock.h"
#include "rueda/base/handshake.h"
#include "rueda/base/unique_fd.h"
#include "rueda/transport/poller.h"

namespace rueda::transport {

class PendingConnection {
 public:
  enum class Progress : uint8_t {
    kBusy,
    kDone,
    kHungUp,   // the other end closed the connection too early; a dialer may try again
    kRefused,  // one side refused the other; why() says why
  };

  PendingConnection(UniqueFd fd, Handshake handshake, Nanos started);

  // Sends and receives what is possible without waiting.
  Progress advance();
  [[nodiscard]] const Status& why() const { return why_; }
  [[nodiscard]] Nanos started() const { return started_; }
  [[nodiscard]] bool has_answered() const { return has_answered_; }  // this side has sent something
  [[nodiscard]] const ConnectionIdentity& identity() const { return handshake_.identity(); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  UniqueFd take_fd() { return std::move(fd_); }

  Watch watch;

 private:
  bool flush();  // false: the other end has closed the connection
  UniqueFd fd_;
  Handshake handshake_;
  Nanos started_;
  Bytes unsent_;
  Status why_;
  bool has_answered_ = false;
};

}  // namespace rueda::transport
