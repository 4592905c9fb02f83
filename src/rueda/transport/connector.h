// Brings channels up on any kind of socket: accepts and dials, authenticates both ends, and retries. It
// limits how many connections, bytes and seconds strangers can use up. Engine thread only.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "rueda/base/refusal_log.h"
#include "rueda/base/socket.h"
#include "rueda/transport/message.h"
#include "rueda/transport/pending_connection.h"
#include "rueda/transport/poller.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

struct Connected {
  UniqueFd fd;
  ChannelName name;
  bool is_dialer = false;
};

// Whether a transport may be created with this identity, and whether it may be asked for this channel.
Status check_identity(const Identity& identity);
Status check_channel(const Identity& identity, const ChannelName& name);

// Lets the kernel look after an idle TCP connection, and try so often that a connection survives an outage of
// less than peer_timeout: host_silence.h.
void survive_outages(int fd, Nanos peer_timeout);

class Connector {
 public:
  // Strangers at a time; one more evicts another one. In a larger job as many as there are ranks, which may
  // all dial rank 0 at once.
  static constexpr size_t kMaxPending = 64;
  static constexpr size_t kMaxChannels = 16;  // per peer

  // vet checks every accepted or connected socket before a byte is exchanged. poller must
  // outlive this object.
  using Vet = std::function<Status(int fd)>;
  Connector(const Identity& identity, ConnectionKind kind, Poller& poller, Vet vet);
  ~Connector();

  Status listen_on(UniqueFd listening);
  void dial(ChannelName name, SocketAddress address);
  // No more channels come up after this.
  void close();

  // To be called after the poller was polled. Returns whether anything happened.
  bool progress(Nanos now);
  std::vector<Connected> take_connected() { return std::exchange(connected_, {}); }
  std::vector<Loss> take_failures() { return std::exchange(failures_, {}); }
  // Why the peer that this rank dials is not connected yet. "" if this rank does not dial it.
  [[nodiscard]] std::string trouble_with(Rank peer) const;
  [[nodiscard]] bool has_work() const;   // progress() has something to do without a new event
  [[nodiscard]] Nanos next_due() const;  // 0 = no timer needed
  [[nodiscard]] size_t pending_count() const { return pending_.size(); }

 private:
  struct Dialing {
    ChannelName name;
    SocketAddress address;
    UniqueFd fd;  // connecting
    Watch watch;
    std::unique_ptr<PendingConnection> connection;
    Nanos retry_at = 0;
    Nanos backoff = 0;
    std::string trouble;  // why the last attempt failed; "" = none has failed
  };

  bool accept_some(Nanos now);
  bool accept_one(Nanos now);                    // false: no connection is waiting
  void turn_away(const Status& why, Nanos now);  // if the process is out of descriptors
  bool advance_pending(Nanos now);
  void admit(PendingConnection& connection);
  void evict_one();
  bool advance(Dialing& dialing, Nanos now);
  Status start(Dialing& dialing, Nanos now);
  void retry_later(Dialing& dialing, std::string why, Nanos now);
  void fail(const Dialing& dialing, Status why);
  ConnectionIdentity connection_identity(const ChannelName& name) const;

  const Identity& identity_;
  ConnectionKind kind_;
  Poller& poller_;
  Vet vet_;
  UniqueFd listening_, reserve_;
  Watch listening_watch_;
  Nanos lacks_since_ = 0, lacked_at_ = 0;  // the process is out of descriptors: first, and when last seen
  std::list<std::unique_ptr<PendingConnection>> pending_;  // oldest first
  std::list<std::unique_ptr<Dialing>> dialing_;
  std::vector<Connected> connected_;
  std::vector<Loss> failures_;
  RefusalLog refusals_;
};

}  // namespace rueda::transport
