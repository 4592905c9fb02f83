// Lets a backend for host memory run calls in CUDA memory as well, by staging: sections of the tensors are
// copied to pinned memory, reduced and exchanged there by that backend, and copied back. Copies and reduction
// of different sections overlap. Results have the same bits as in host memory. Engine thread only.
//
// It stands in front of the other backend and passes on all calls in their one global order, those in host
// memory as they are. A call in host memory therefore waits while an earlier one is still on its way from the
// device; otherwise ranks could start calls of one backend in different orders.
//
// A call is launched, and so done, when its copies back to the device are enqueued; its event happens when
// they have ended. Nothing is enqueued for a call before the ready events of its tensors have happened, so
// nothing that waits for them is left behind at the end of an epoch.
//
// Sums and broadcasts among ranks of one host pass through slots of device memory instead of pinned memory
// where that works (peer.h). Whether a call does is known when the members have set up the process set, and
// follows from the global order alone, so all members decide alike.
//
// Plans: members meet in host memory before anything is written to the device, so a call may be cancelled
// whenever the other backend can cancel its own. Of such a call, the second section starts when the
// first has ended: all members have started it then.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/device/peer.h"
#include "rueda/backend/device/staged_call.h"
#include "rueda/memory/cuda/deferred_frees.h"

namespace rueda::backend {

struct StagedOptions {
  // Copying one over PCIe takes about 0.3 ms. The same on every rank.
  size_t section_bytes = 8 << 20;
  // One section each for the way there, two for reduction (between hosts two calls run at once), and one for
  // the way back.
  size_t buffers = 4;
};

class StagedBackend final : public Backend, public Cancellation {
 public:
  // host: for host memory. devices: null if this job has no CUDA; no call is on a device then.
  StagedBackend(std::unique_ptr<Backend> host, const std::shared_ptr<cuda::Devices>& devices,
                PeerOptions peers, std::shared_ptr<DeviceCopiers> copiers, const StagedOptions& options = {})
      : host_(std::move(host)),
        peers_(*host_, devices, std::move(peers)),
        copiers_(std::move(copiers)),
        options_(options),
        buffers_(options.buffers, 2 * options.section_bytes) {}

  [[nodiscard]] std::string_view name() const override { return host_->name(); }
  [[nodiscard]] std::string_view gpu_operations() const override { return "staged"; }
  [[nodiscard]] bool encodes(const Group& group) const override { return host_->encodes(group); }
  [[nodiscard]] bool accepts(const Group& group, const schedule::Spec& spec,
                             const Memory& memory) const override;
  [[nodiscard]] bool copies_fused(const Group& group, const schedule::Spec& spec) const override {
    return host_->copies_fused(group, spec);
  }
  [[nodiscard]] bool keeps_order() const override { return host_->keeps_order(); }
  [[nodiscard]] bool obeys_tuning() const override { return host_->obeys_tuning(); }
  [[nodiscard]] Cancellation* cancellation() override {
    return host_->cancellation() != nullptr ? this : nullptr;
  }
  [[nodiscard]] bool has_room(uint64_t order) const override;
  void start(const Call& call) override;
  bool progress(std::vector<Done>& done) override;
  [[nodiscard]] bool is_idle() const override;
  [[nodiscard]] Status device_failure() const override;
  void abort(const Status& why) override;
  [[nodiscard]] bool waits_on_memory() const override;
  [[nodiscard]] bool needs_polling() const override { return host_->needs_polling(); }
  bool prepare_sleep() override;
  void wake_up() override { host_->wake_up(); }
  std::vector<int32_t> pause(CallId call) override;
  void resume(CallId call) override;
  void cancel(CallId call, std::span<const int32_t> arrivals) override;
  void discard(const Call& call, std::span<const int32_t> arrivals) override;

 private:
  StagedCall& open_call(CallId id);
  // Whether the host backend, or the exchange from GPU to GPU, has room for a call in this place.
  [[nodiscard]] bool has_room_inside(uint64_t order) const {
    return !peers_.is_busy() && host_->has_room(order);
  }
  // Who cancels a call in host memory or on slots.
  [[nodiscard]] Cancellation& inside(CallId inner) {
    return peers_.runs(inner) ? peers_ : *host_->cancellation();
  }
  bool look_at_launched();
  void ask_for_way(StagedCall& call, const Call& as);
  bool decide(StagedCall& call);
  bool set_up(StagedCall& call);
  bool fetch(StagedCall& call);
  bool start_in_order();
  [[nodiscard]] bool can_start(StagedCall& call);
  void start_section(StagedCall& call);
  void on_host_done(const Done& done);
  bool hand_out(std::vector<Done>& done);
  void fail(StagedCall& call, const Status& why);
  Status ask_for_waking(StagedCall& call);

  cuda::DeferredFrees frees_;  // first: destroyed last
  std::unique_ptr<Backend> host_;
  PeerExchange peers_;
  std::shared_ptr<DeviceCopiers> copiers_;
  StagedOptions options_;
  StagingBuffers buffers_;
  std::deque<std::unique_ptr<StagedCall>> open_;  // in the global order
  std::vector<std::shared_ptr<CudaEvent>> launched_;
  std::vector<Done> host_done_;  // scratch of progress()
  CallId next_inner_ = 1;
  Status broken_;  // nothing starts any more: this rank is out of step
};

}  // namespace rueda::backend
