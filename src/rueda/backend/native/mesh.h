// The connections of the native backend. A channel need not be up when a call needs it: the call then waits,
// and the engine does not. Engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rueda/backend/native/prepared_schedule.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/schedule/topology.h"
#include "rueda/transport/transport.h"

namespace rueda::backend {

// The connections, and where the ranks are. No function waits.
struct Mesh {
  // The data channel to a world rank other than mine; null while it is not up.
  std::function<transport::Endpoint*(Rank world_rank, size_t channel)> endpoint;
  // Begins to connect to that rank, or goes on with it; called while endpoint() is null. Fails if the channel
  // cannot come up. Empty if all channels are up before calls run.
  std::function<Status(Rank world_rank)> connect = {};
  // The rank in a sentence, and where it was looked for.
  std::function<std::string(Rank world_rank)> describe = {};
  // Where the members of a group live. The same on every member.
  std::function<schedule::Topology(const Group&)> topology;
  Nanos patience = 30 * kSecond;  // how long a call waits for a channel
  std::function<Nanos()> now = monotonic_now;
};

// The data channels that one call needs: which are up, and whether waiting for the others still has a point.
class CallChannels {
 public:
  CallChannels(const Mesh& mesh, size_t channel) : mesh_(mesh), channel_(channel) {}

  // Another call. group and prepared are borrowed until the next one.
  void begin(const Group& group, const PreparedSchedule& prepared);
  // Whether everything that the call needs is up. If not, begins to connect or goes on with it. arrivals: the
  // call is cancelled, and needs only the channels of members that have sent messages for it.
  bool are_up(std::optional<std::span<const int32_t>> arrivals);
  // Why there is no point in waiting any longer; it names the member. Ok while there is.
  [[nodiscard]] const Status& failure() const { return failure_; }
  [[nodiscard]] std::span<transport::Endpoint* const> endpoints() const { return endpoints_; }  // [member]

 private:
  transport::Endpoint* connect(Rank world_rank);
  void check_patience(Rank world_rank);

  const Mesh& mesh_;
  size_t channel_;
  const Group* group_ = nullptr;
  const PreparedSchedule* prepared_ = nullptr;
  std::vector<transport::Endpoint*> endpoints_;
  std::optional<Deadline> deadline_;  // of the wait, once it has begun
  Status failure_;
};

}  // namespace rueda::backend
