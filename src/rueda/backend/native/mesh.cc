#include "rueda/backend/native/mesh.h"

#include "rueda/base/check.h"

namespace rueda::backend {

void CallChannels::begin(const Group& group, const PreparedSchedule& prepared) {
  group_ = &group;
  prepared_ = &prepared;
  endpoints_.assign(static_cast<size_t>(group.size()), nullptr);
  deadline_.reset();
  failure_ = Status::ok();
}

bool CallChannels::are_up(std::optional<std::span<const int32_t>> arrivals) {
  Rank missing = -1;
  for (const PreparedSchedule::Queue& queue : prepared_->queues) {
    transport::Endpoint*& endpoint = endpoints_[queue.peer];
    if (endpoint != nullptr) continue;
    const Rank peer = group_->members[queue.peer];
    endpoint = mesh_.endpoint(peer, channel_);
    if (endpoint != nullptr || (arrivals && (*arrivals)[queue.peer] == 0)) continue;
    endpoint = connect(peer);
    if (endpoint == nullptr && missing < 0) missing = peer;
  }
  if (missing < 0) return true;
  if (failure_.is_ok()) check_patience(missing);
  return false;
}

// The endpoint, if it is up at once.
transport::Endpoint* CallChannels::connect(Rank world_rank) {
  RUEDA_CHECK(mesh_.connect != nullptr, "a channel that a schedule needs is not up");
  const Status begun = mesh_.connect(world_rank);
  if (!begun.is_ok() && failure_.is_ok())
    failure_ = {Code::kPeerLost, "cannot connect to " + mesh_.describe(world_rank) + ": " + begun.why};
  return begun.is_ok() ? mesh_.endpoint(world_rank, channel_) : nullptr;
}

void CallChannels::check_patience(Rank world_rank) {
  const Nanos now = mesh_.now();
  if (!deadline_) deadline_ = Deadline::at(now + mesh_.patience);
  if (!deadline_->is_past(now)) return;
  failure_ = {Code::kPeerLost, "no connection to " + mesh_.describe(world_rank) + " came up within " +
                                   std::to_string(mesh_.patience / kSecond) +
                                   " s; check firewalls and interfaces, or raise "
                                   "RUEDA_PEER_TIMEOUT_SECONDS."};
}

}  // namespace rueda::backend
