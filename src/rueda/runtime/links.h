// The wires of one epoch: for every peer the best transport both sides have, one data lane and - between the
// coordinator and each rank - one control lane that carries frames. Engine thread only (init runs before it).
#pragma once

#include <array>
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
#include "rueda/control/messages.h"
#include "rueda/runtime/facts.h"
#include "rueda/transport/transport.h"

namespace rueda::runtime {

inline constexpr uint16_t kDataLane = 0;
inline constexpr uint16_t kControlLane = 1;
inline constexpr Rank kCoordinator = 0;

struct Frame {
  Rank from = -1;
  control::FrameType type = control::FrameType::kHeartbeat;
  Bytes payload;
};

// Until one of them has input or the deadline is past.
void sleep_on(std::span<const int> fds, Deadline deadline);

class Links {
 public:
  // transports: best first. all: the facts of every rank, mine included; outlives this object.
  Links(std::vector<std::unique_ptr<transport::Transport>> transports, Rank me,
        const std::vector<Facts>& all);

  // Brings every lane up. interrupted is asked now and then; its failure ends the wait.
  Status connect_all(Deadline deadline, const std::function<Status()>& interrupted);

  [[nodiscard]] transport::Endpoint* data(Rank peer) const;
  [[nodiscard]] std::string_view transport_name(Rank peer) const;

  void send_frame(Rank peer, control::FrameType type, Bytes payload);
  // To every other rank; coordinator only.
  void broadcast_frame(control::FrameType type, const Bytes& payload);
  [[nodiscard]] bool has_unsent_frames() const { return !outgoing_.empty(); }

  // Moves bytes. Completions of control lanes become frames; those of data lanes go to on_data.
  bool progress(const std::function<void(const transport::Completion&)>& on_data);
  std::vector<Frame> take_frames() { return std::exchange(frames_, {}); }
  // Frames taken too early; they come first in the next take_frames().
  void put_back_frames(std::vector<Frame> frames);
  std::vector<transport::Loss> take_losses();

  // To sleep: prepare_sleep(), poll wake_fds(), progress(). A false says that there is work already.
  bool prepare_sleep();
  [[nodiscard]] std::vector<int> wake_fds() const;
  void sleep(Deadline deadline);
  [[nodiscard]] bool is_all_shared_memory() const;
  void abort(const Status& why);

 private:
  struct Peer {
    size_t transport = 0;
    transport::Endpoint* data = nullptr;
    transport::Endpoint* control = nullptr;
    std::array<std::byte, control::kFrameHeaderBytes> header{};
    control::FrameHeader parsed;
    Bytes body;
  };
  [[nodiscard]] bool has_control_lane(Rank peer) const { return me_ == kCoordinator || peer == kCoordinator; }
  Status choose_transport(Rank peer);
  [[nodiscard]] std::string address_of(Rank peer, std::string_view transport) const;
  bool adopt_endpoints();  // true when every lane is up
  [[nodiscard]] std::string missing_peers() const;
  void expect_header(Rank peer);
  void on_control(const transport::Completion& completion);

  std::vector<std::unique_ptr<transport::Transport>> transports_;
  Rank me_;
  const std::vector<Facts>& all_;
  std::vector<Peer> peers_;
  std::vector<Frame> frames_;
  std::vector<transport::Loss> losses_;
  std::vector<transport::Completion> completions_;
  std::unordered_map<transport::Ticket, Bytes> outgoing_;
  uint64_t next_send_ = 0;
};

}  // namespace rueda::runtime
