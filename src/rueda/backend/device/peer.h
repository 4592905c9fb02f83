// Lets the ranks of one host add and broadcast in device memory. Each rank exports a window of its GPU's
// memory (CUDA IPC), and the others map it. StagedBackend copies sections of tensors into slots of the window
// and out of it, as it does with pinned memory otherwise. Engine thread only.
//
// It stands in front of a backend for host memory, and passes on calls in host memory as they are. Through
// that backend the members meet. A call on slots of windows passes through these states:
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
// One call on slots runs at a time; nothing else starts meanwhile, so all members have one order of meetings.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/device/peer_terms.h"
#include "rueda/backend/device/staging_buffers.h"
#include "rueda/memory/cuda/device.h"
#include "rueda/memory/cuda/events.h"
#include "rueda/memory/cuda/ipc.h"
#include "rueda/memory/cuda/kernels.h"
#include "rueda/memory/cuda/streams.h"

namespace rueda::backend {

// All fields but `wake` and `local_rank` are the same on every rank.
struct PeerOptions {
  enum class Use : uint8_t { kNever, kLargeCalls, kAlways };
  Use use = Use::kNever;
  std::function<bool(const Group& group)> is_one_host;  // whether its ranks share the memory of a host
  bool warns_of_shared_gpu = true;                      // no other backend has said it
  size_t section_bytes = 8 << 20;                       // wanted; less if a device has less memory left
  Rank local_rank = 0;                                  // chooses the GPU of a rank that has joined
  std::function<void()> wake;                           // any thread; wakes the engine thread
};

class PeerBackend final : public Backend {
 public:
  // devices: null if this job has no CUDA; no call is on a device then.
  PeerBackend(std::unique_ptr<Backend> host, std::shared_ptr<cuda::Devices> devices, PeerOptions options);
  ~PeerBackend() override;
  PeerBackend(const PeerBackend&) = delete;
  PeerBackend& operator=(const PeerBackend&) = delete;

  // ---- how a call in device memory runs; asked in the global order, before anything else of the call ----

  // Pinned: in host memory. Slots: in windows. Introduce: the same, and the members must meet before.
  struct Way {
    bool uses_slots = false, must_introduce = false;
  };
  Way way_of(const Call& call);
  // Requires has_room(). The members tell which GPU they have and, if the call uses slots, map windows.
  void introduce(const Call& call, bool uses_slots);
  // Whether the introduction that way_of() has asked for is over.
  [[nodiscard]] bool is_settled(const Group& group, bool uses_slots) const;
  // Null: this process set does without slots.
  [[nodiscard]] StagingBuffers* slots_of(const Group& group);
  [[nodiscard]] size_t section_bytes(const Group& group) const;
  // Why calls of this process set fail, because RUEDA_CUDA_IPC=on cannot be kept; the same on every member.
  [[nodiscard]] Status refusal(const Group& group) const;

  // ---- Backend ----

  [[nodiscard]] std::string_view name() const override { return host_->name(); }
  [[nodiscard]] bool accepts(const Group& group, const schedule::Spec& spec,
                             const Memory& memory) const override {
    return host_->accepts(group, spec, memory);
  }
  [[nodiscard]] bool copies_fused(const Group& group, const schedule::Spec& spec) const override {
    return host_->copies_fused(group, spec);
  }
  [[nodiscard]] bool can_take_back(const Group& group, const schedule::Spec& spec) const override {
    return host_->can_take_back(group, spec);
  }
  [[nodiscard]] bool has_room(uint64_t order) const override {
    return state_ == State::kIdle && host_->has_room(order);
  }
  void start(const Call& call) override;
  bool progress(std::vector<Done>& done) override;
  [[nodiscard]] bool is_idle() const override {
    return state_ == State::kIdle && done_.empty() && host_->is_idle();
  }
  void abort(const Status& why) override;
  [[nodiscard]] bool waits_on_memory() const override { return host_->waits_on_memory(); }
  [[nodiscard]] bool needs_polling() const override { return host_->needs_polling(); }
  bool prepare_sleep() override;
  void wake_up() override { host_->wake_up(); }
  std::vector<int32_t> pause(CallId call) override;
  void resume(CallId call) override;
  void take_back(CallId call, std::span<const int32_t> arrivals) override;
  void discard(const Call& call, std::span<const int32_t> arrivals) override;

 private:
  enum class State : uint8_t {
    kIdle,
    kIntroducing,
    kMapping,
    kGathering,
    kAdding,
    kSharing,
    kTaking,
    kLeaving,
    kGoneBack
  };
  struct Members {                            // of one process set
    bool has_met = false, has_tried = false;  // or will, before any later call of the set
    bool is_met = false, is_tried = false;    // it is over
    std::string why_not;                      // windows are not used
    size_t section_bytes = 0;                 // with windows
    std::vector<const std::byte*> windows;    // [members]; mine as well
    std::vector<size_t> window_bytes;         // [members]
  };
  using Key = std::pair<int32_t, std::vector<Rank>>;
  static Key key_of(const Group& group) { return {group.id, group.members}; }

  [[nodiscard]] bool may_use_slots(const Call& call) const;
  void fill(PeerRow& row, bool uses_slots);
  Status open_gpu();
  std::string make_window();
  void finish_introduction();
  void map_windows();
  void finish_mapping();
  void meet(std::span<const Segment> segments, schedule::Spec spec, State state);
  void meet_rows(State state);
  void gather();
  Call gathering();
  bool advance();
  Status enter_gathered();
  Status add();
  Status take();
  Status record();
  void barrier(State state);
  void end(const Status& status);
  [[nodiscard]] bool is_mine(CallId call) const;
  [[nodiscard]] bool is_reading() const { return state_ == State::kAdding || state_ == State::kTaking; }

  std::unique_ptr<Backend> host_;
  std::shared_ptr<cuda::Devices> devices_;
  PeerOptions options_;
  std::map<Key, Members> members_;
  std::map<Rank, cuda::MappedMemory> mapped_;  // windows of others, by world rank, until the epoch ends

  // This rank's GPU, once it is used.
  std::shared_ptr<const cuda::Device> device_;
  std::unique_ptr<cuda::Stream> stream_;
  std::unique_ptr<cuda::Kernels> kernels_;
  std::unique_ptr<cuda::EventPool> events_;
  cuda::ExportedMemory window_;
  std::string why_no_window_;
  size_t slot_bytes_ = 0;
  std::unique_ptr<StagingBuffers> slots_;

  // The call on slots, or the introduction, that runs.
  State state_ = State::kIdle;
  Call call_;
  Group group_;  // a copy: the introduction may outlive its call
  CallId meeting_ = 0;
  std::optional<Status> met_;  // how the meeting ended
  Segment segment_;            // of the meeting
  std::vector<PeerRow> rows_, all_rows_;
  std::vector<int64_t> places_, all_places_;  // [members] offset of the slot in the window, and 1; 0: none
  bool uses_slots_ = false;
  bool will_wake_ = false;
  std::shared_ptr<cuda::Event> event_;  // of kAdding and kTaking
  CallId meetings_ = 0;
  std::vector<Done> done_, host_done_;
  Status broken_;
};

}  // namespace rueda::backend
