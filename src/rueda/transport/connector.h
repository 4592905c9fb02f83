// Brings channels up, whatever kind of socket carries them: accepts and dials, proves both ends, retries, and
// bounds what strangers can cost in number, bytes and time. Engine thread only.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "rueda/base/refusal_log.h"
#include "rueda/base/socket.h"
#include "rueda/transport/greeting.h"
#include "rueda/transport/message.h"
#include "rueda/transport/poller.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

struct Connected {
  UniqueFd fd;
  ChannelName name;
  bool is_dialer = false;
};

// What a transport may be built with and asked for.
Status check_identity(const Identity& identity);
Status check_channel(const Identity& identity, const ChannelName& name);

class Connector {
 public:
  static constexpr size_t kMaxPending = 64;   // strangers at a time; then the oldest has to go
  static constexpr size_t kMaxChannels = 16;  // per peer

  // vet sees every accepted or connected socket before a byte is exchanged. poller outlives this.
  using Vet = std::function<Status(int fd)>;
  Connector(const Identity& identity, ConnectionKind kind, Poller& poller, Vet vet);
  ~Connector();

  Status listen_on(UniqueFd listening);
  void dial(ChannelName name, SocketAddress address);
  // After this no more channels come up.
  void close();

  // To be called when the poller was polled; true if anything happened.
  bool progress(Nanos now);
  std::vector<Connected> take_connected() { return std::exchange(connected_, {}); }
  std::vector<Loss> take_failures() { return std::exchange(failures_, {}); }
  [[nodiscard]] bool has_work() const;   // without a new event
  [[nodiscard]] Nanos next_due() const;  // 0 = no timer needed
  [[nodiscard]] size_t pending_count() const { return pending_.size(); }

 private:
  struct Dialing {
    ChannelName name;
    SocketAddress address;
    UniqueFd fd;  // connecting
    Watch watch;
    std::unique_ptr<Greeting> greeting;
    Nanos retry_at = 0;
    Nanos backoff = 0;
  };

  bool accept_some(Nanos now);
  bool accept_one(Nanos now);         // false: nobody is waiting
  void turn_away(const Status& why);  // out of descriptors
  bool greet(Nanos now);
  void admit(Greeting& greeting);
  void evict_one();
  bool advance(Dialing& dialing, Nanos now);
  Status start(Dialing& dialing, Nanos now);
  void retry_later(Dialing& dialing, Nanos now);
  void fail(const Dialing& dialing, Status why);
  Introduction introduce(const ChannelName& name) const;

  const Identity& identity_;
  ConnectionKind kind_;
  Poller& poller_;
  Vet vet_;
  UniqueFd listening_, reserve_;
  Watch listening_watch_;
  std::list<std::unique_ptr<Greeting>> pending_;  // oldest first
  std::list<std::unique_ptr<Dialing>> dialing_;
  std::vector<Connected> connected_;
  std::vector<Loss> failures_;
  RefusalLog refusals_;
};

}  // namespace rueda::transport
