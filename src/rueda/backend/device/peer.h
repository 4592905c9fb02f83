// Lets the ranks of one host add and broadcast in device memory. Each rank exports a window of its GPU's
// memory (CUDA IPC), and the others map it. StagedBackend copies sections of tensors into slots of the window
// and out of it, as it does with pinned memory otherwise. Engine thread only.
//
// The members meet through a backend for host memory, between the calls that StagedBackend gives to it. A
// call on slots of windows passes through these states:
//
//   kGathering  a sum in host memory: each member tells in which slot its section lies. All have come then
//   kAdding     each member with tensors adds its share, in rank order, and writes the sum into its own slot
//   kSharing    a barrier: all shares are added
//   kTaking     each member copies the shares of the others into its slot
//   kLeaving    a barrier: nobody reads the slot any more
//
// A broadcast has no kAdding and no kSharing. Members wait for a device on the host, so no stream ever waits
// for another process, and a lost rank leaves no device waiting. The sums have the bits of host memory.
//
// One call on slots runs at a time; nothing else starts meanwhile, so all members have one order of host
// syncs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/device/peer_setup.h"
#include "rueda/backend/device/peer_sync.h"
#include "rueda/backend/device/peer_window.h"
#include "rueda/memory/cuda/events.h"

namespace rueda::backend {

class PeerExchange final : public Cancellation {
 public:
  // host: borrowed. devices: null if this job has no CUDA; no call is on a device then.
  PeerExchange(Backend& host, const std::shared_ptr<cuda::Devices>& devices, PeerOptions options);
  ~PeerExchange() override;
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;

  [[nodiscard]] PeerSetup& setup() { return setup_; }

  // Whether the call is one on slots.
  [[nodiscard]] static bool takes(const Call& call);
  // Whether such a call, or a setup, is under way: nothing else may start then.
  [[nodiscard]] bool is_busy() const { return state_ != State::kIdle || setup_.is_open(); }
  [[nodiscard]] bool is_idle() const { return !is_busy() && done_.empty(); }
  // Whether the call under way is this one.
  [[nodiscard]] bool runs(CallId call) const { return state_ != State::kIdle && call_.id == call; }
  void start(const Call& call);
  // Whether what the host backend has returned was a host sync of this object.
  bool take(const Done& done) { return sync_.take(done); }
  bool progress(std::vector<Done>& done);
  // The engine thread is woken when the device has done what a call waits for. False: there is something to
  // do.
  bool prepare_sleep();
  // The host backend is aborted already.
  void abort(const Status& why);

  std::vector<int32_t> pause(CallId call) override;
  void resume(CallId call) override;
  void cancel(CallId call, std::span<const int32_t> arrivals) override;
  void discard(const Call& call, std::span<const int32_t> arrivals) override;

 private:
  enum class State : uint8_t { kIdle, kGathering, kAdding, kSharing, kTaking, kLeaving, kCancelled };

  void prepare(const Call& call);
  bool advance();
  Status enter_gathered();
  Status add();
  Status take_shares();
  Status wait_for_device(State state);
  void barrier(State state);
  void end(const Status& status);
  [[nodiscard]] bool is_reading() const { return state_ == State::kAdding || state_ == State::kTaking; }
  [[nodiscard]] size_t adders() const;

  PeerOptions options_;
  PeerWindow window_;
  PeerSync sync_;
  PeerSetup setup_;

  // The call that runs.
  State state_ = State::kIdle;
  Call call_;
  Group group_;
  Segment segment_;                           // of kGathering
  std::vector<int64_t> places_, all_places_;  // [members] offset of the slot in the window, and 1; 0: none
  std::shared_ptr<cuda::Event> event_;        // of kAdding and kTaking
  bool will_wake_ = false;
  std::vector<Done> done_;
  Status broken_;
};

}  // namespace rueda::backend
