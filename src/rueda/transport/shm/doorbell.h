// Wakes ranks of this host that sleep. Each rank has one datagram socket, at which all others ring, so that
// ringing takes one descriptor whatever the number of ranks. A datagram carries nothing that anybody trusts:
// who hears it looks at memory. Engine thread only, except during init.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"
#include "rueda/transport/poller.h"

namespace rueda::transport {

class Doorbell {
 public:
  static constexpr size_t kMaxNameBytes = 48;
  enum class Rung : uint8_t {
    kNo,
    kForData,  // look at the rings
    kForNews,  // look at the ends of channels and processes, too
  };

  // name: of an abstract UNIX socket, at most kMaxNameBytes.
  static Result<std::unique_ptr<Doorbell>> open(std::string_view name, Poller& poller);
  ~Doorbell();

  [[nodiscard]] const std::string& name() const { return name_; }
  // False if there is no such doorbell, or this process may not ring it. One that is full has been rung.
  bool ring(std::string_view name, Rung why = Rung::kForData) const;  // NOLINT(modernize-use-nodiscard)
  // To be called after the poller was polled: how it has been rung since the last call.
  Rung take();
  [[nodiscard]] bool has_rung() const { return watch_.ready != 0; }

 private:
  Doorbell(std::string_view name, UniqueFd socket, Poller& poller);

  std::string name_;
  UniqueFd socket_;
  Poller& poller_;
  Watch watch_;
};

}  // namespace rueda::transport
