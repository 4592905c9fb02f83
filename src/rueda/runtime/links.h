// The connections of one epoch: for every peer the best transport that both ranks have, a control channel to
// the neighbours in the hierarchy, and data channels. Init brings up the control channels, and the few data
// channels that the hierarchy names; the others come up when a call wants them. The higher rank of a pair
// dials. If the lower one wants the channels first, it asks the higher one on the control channels, so that
// they do not wait for its program. Engine thread only, except during init, which runs before it.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/control/message_types.h"
#include "rueda/runtime/hierarchy.h"
#include "rueda/runtime/peer_info.h"
#include "rueda/runtime/routes.h"
#include "rueda/runtime/transports.h"
#include "rueda/transport/transport.h"

namespace rueda::runtime {

inline constexpr uint16_t kControlChannel = 1;
inline constexpr size_t kMaxDataChannels = 2;

// The number of the i-th data channel.
constexpr uint16_t data_channel(size_t i) { return static_cast<uint16_t>(i == 0 ? 0 : kControlChannel + i); }
// How many data channels a job has. Between hosts two calls run at once. On one host that would
// only cost memory.
size_t data_channels(const std::vector<PeerInfo>& all);
// Whether there is one more data channel, after those: a backend for device memory meets the other ranks
// there.
bool has_sync_channel(const std::vector<PeerInfo>& all);

// A control message that has arrived.
struct ControlMessage {
  Rank from = -1;
  control::MessageType type = control::MessageType::kHeartbeat;
  Bytes payload;
};

// Returns when one of the descriptors has input or the deadline has passed.
void sleep_on(std::span<pollfd> polled, Deadline deadline);
std::vector<pollfd> polled_for_input(std::span<const int> fds);

class Links {
 public:
  // transports: best first. all: the peer info of every rank, also of this one; outlives this object.
  Links(std::vector<OpenTransport> transports, Rank me, const std::vector<PeerInfo>& all);

  // Whether the data channels to that rank are up. The first call begins to connect, and progress() goes on
  // with it. A later failure is a loss.
  Result<bool> acquire(Rank peer);
  [[nodiscard]] Routes& routes() { return routes_; }
  [[nodiscard]] const Hierarchy& hierarchy() const { return hierarchy_; }
  // The connections that this rank dials and that are not up yet, each with the reason: "from rank 2 (…) to
  // rank 1 (…) over tcp at 10.0.0.1:4000: Connection refused". "": none.
  [[nodiscard]] std::string unanswered() const;
  // The ranks with which a connection that is wanted is not up yet.
  [[nodiscard]] std::vector<Rank> missing_peers() const;
  // Begins to connect what is needed when init ends.
  Status begin_connecting();
  // Takes the channels that have come up. True when all are up that anybody here has asked for.
  bool take_all_channels();
  // Begins, and brings it up. interrupted() is called from time to time; if it fails, the wait ends.
  Status connect_all(Deadline deadline, const std::function<Status()>& interrupted);

  [[nodiscard]] transport::Endpoint* data(Rank peer, size_t channel = 0) const;  // null: not up
  [[nodiscard]] std::string_view transport_name(Rank peer) const;
  [[nodiscard]] std::string describe_link(Rank peer) const { return routes_.describe(peer); }

  void send_control(Rank peer, control::MessageType type, Bytes payload);
  // To every child.
  void send_control_below(control::MessageType type, Bytes payload);
  [[nodiscard]] bool has_unsent_control() const { return !outgoing_.empty(); }

  // Moves bytes. Completions of control channels become control messages; those of data channels
  // go to on_data.
  bool progress(const std::function<void(const transport::Completion&)>& on_data);
  std::vector<ControlMessage> take_control() { return std::exchange(messages_, {}); }
  // Gives back messages that were taken too early; they come first in the next take_control().
  void put_back_control(std::vector<ControlMessage> messages);
  std::vector<transport::Loss> take_losses();

  // Of all data channels to that rank together; empty where nothing counts it.
  [[nodiscard]] std::optional<transport::LinkUse> use(Rank peer) const;
  // The shortest round trip to that rank so far; 0 where nothing counts it. Any thread, after init.
  [[nodiscard]] Nanos round_trip(Rank peer) const;
  // As Endpoint::host_silence, of the connection that says most about the host of that rank.
  [[nodiscard]] std::optional<Nanos> host_silence(Rank peer) const;

  // To sleep: call prepare_sleep(), poll wake_fds(), then call progress(). prepare_sleep() is false if there
  // is work already.
  bool prepare_sleep();
  [[nodiscard]] std::vector<int> wake_fds() const;
  void sleep(Deadline deadline);
  // Whether the data of peers wakes this rank only if it has announced its sleep.
  [[nodiscard]] bool are_silent() const;
  void abort(const Status& why);
  // Memory of a data operation for which nobody waits any more: a transport may use it until it ends.
  void keep(Bytes memory) { kept_.push_back(std::move(memory)); }

 private:
  struct Peer {
    bool wants_data = false, wants_control = false;
    std::array<std::atomic<transport::Endpoint*>, kMaxDataChannels + 1> data{};  // round_trip(): any thread
    transport::Endpoint* control = nullptr;
    std::array<std::byte, control::kControlHeaderBytes> header{};
    control::ControlHeader parsed;
    Bytes body;
  };
  Status want_control(Rank peer);
  Status want_data(Rank peer);
  // Whether every channel that is wanted is up.
  [[nodiscard]] bool is_up(Rank peer) const;
  void take_channels(Rank peer);
  void ask_to_dial(Rank peer);
  void on_connect(Rank from, std::span<const std::byte> payload);
  // The rank, its address and the trouble with it.
  [[nodiscard]] std::string describe_missing(Rank peer) const;
  [[nodiscard]] std::string trouble_with(Rank peer) const;  // "": none, or only the peer knows it
  [[nodiscard]] std::string from_here_to(const std::vector<Rank>& missing) const;
  void send_shared(Rank peer, control::MessageType type, const std::shared_ptr<const Bytes>& payload);
  void expect_header(Rank peer);
  void on_control(const transport::Completion& completion);

  Rank me_;
  const std::vector<PeerInfo>& all_;
  Hierarchy hierarchy_;
  size_t data_channels_;
  std::vector<Peer> peers_;
  std::vector<ControlMessage> messages_;
  std::vector<transport::Loss> losses_;
  std::vector<transport::Completion> completions_;
  std::unordered_map<transport::Ticket, std::shared_ptr<const Bytes>> outgoing_;
  uint64_t next_send_ = 0;
  std::vector<Bytes> kept_;
  // Last, so that it goes first: until a transport has ended, what arrives is written into peers_ and kept_,
  // and what is sent is read from outgoing_ and kept_.
  Routes routes_;
};

}  // namespace rueda::runtime
