// What members of a process set settle on the host before NCCL may run: that all of them have come (a call
// that may be cancelled is launched only then, because a launched call cannot be cancelled), and who they
// are, with the id of their communicator. Another backend runs both, on channels of its own, one host sync
// at a time, and also the calls of members that cannot use NCCL together: it stages them in host memory. All
// members give it host syncs and calls in one order. Engine thread only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/nccl/abi.h"

namespace rueda::nccl {

// What a member tells the others before they make a communicator. The texts end with a null.
struct MemberInfo {
  UniqueId id = {};        // of the communicator; member 0's counts
  int64_t pack_bytes = 0;  // for how many bytes of packed tensors its GPU has memory
  char gpu[128] = {};      // equal for members whose GPUs NCCL takes for one; empty: NCCL allows that
  char why_not[384] = {};  // why it cannot use NCCL; empty: it can

  void set_gpu(std::string_view text);
  void set_why_not(std::string_view text);
};

// Why these members cannot use NCCL together, in a sentence that names them; empty if they can. The same on
// every member. Pure.
std::string refusal_of(const Group& group, std::span<const MemberInfo> members);

// How many bytes all members can pack. The same on every member. Pure.
size_t pack_bytes_of(std::span<const MemberInfo> members);

class HostSync {
 public:
  // host: null in a job of one rank, which meets nobody.
  explicit HostSync(std::unique_ptr<backend::Backend> host) : host_(std::move(host)) {}

  // Whether calls may be cancelled until all members have come.
  [[nodiscard]] bool are_possible() const { return host_ != nullptr; }
  // Whether a host sync may begin, or a call be handed over.
  [[nodiscard]] bool has_room() const { return host_ == nullptr || host_->has_room(order_); }

  // Ends when all members have begun the call.
  void begin_for(const backend::Call& call);
  // As Cancellation::discard, for such a host sync.
  void discard(const backend::Call& call, std::span<const int32_t> arrivals);
  // Ends when all members have set up the process set.
  void begin_for(const Group& group, const MemberInfo& mine);

  // Lets the other backend run one call in device memory for the owner's own purposes: the part of a
  // hierarchical allreduce between hosts. Ends as a host sync does, when the result's event is known.
  void begin_for(const Group& between, const schedule::Spec& spec, const backend::Segment& segment);
  // Whether it runs such a call in device memory. The same on every member.
  [[nodiscard]] bool can_run(const Group& group, const schedule::Spec& spec) const {
    return host_ != nullptr && host_->accepts(group, spec, {.kind = MemoryKind::kDevice, .device = 0});
  }

  // Lets the other backend run a call in device memory. False if it cannot.
  bool hand_over(const backend::Call& call);

  // Advances both. Appends the calls that were handed over and have ended.
  bool progress(std::vector<backend::Done>& done);
  // The outcome of the host sync, once.
  std::optional<Status> take_outcome() { return std::exchange(ended_, std::nullopt); }
  // The event of what the last host sync has launched; null if it was only a host sync.
  [[nodiscard]] const std::shared_ptr<backend::DeviceEvent>& event() const { return event_; }
  // [members] of the last host sync that was for member infos.
  [[nodiscard]] std::span<const MemberInfo> member_infos() const { return member_infos_; }

  // As in Backend, for the host sync of a call.
  std::vector<int32_t> pause();
  void resume();
  void cancel(std::span<const int32_t> arrivals);
  void abort(const Status& why) {
    if (host_ != nullptr) host_->abort(why);
  }
  [[nodiscard]] bool is_idle() const { return host_ == nullptr || host_->is_idle(); }
  [[nodiscard]] Status device_failure() const {
    return host_ == nullptr ? Status::ok() : host_->device_failure();
  }
  bool prepare_sleep() { return host_ == nullptr || host_->prepare_sleep(); }
  void wake_up() {
    if (host_ != nullptr) host_->wake_up();
  }

 private:
  backend::Call open(const Group& group, schedule::Spec spec, bool is_for_call);

  std::unique_ptr<backend::Backend> host_;
  backend::CallId next_ = 1;
  uint64_t order_ = 0;
  bool is_for_call_ = false;  // the host sync
  backend::CallId open_ = 0;  // the call of the host sync that has not ended; 0: none
  std::optional<Status> ended_;
  std::shared_ptr<backend::DeviceEvent> event_;             // of the host sync that has ended
  std::map<backend::CallId, backend::CallId> handed_over_;  // the call here -> what its owner calls it
  backend::Segment segment_;
  std::vector<int64_t> counts_;  // bytes of each member
  MemberInfo mine_;
  std::vector<MemberInfo> member_infos_;
  std::vector<backend::Done> done_;
};

}  // namespace rueda::nccl
