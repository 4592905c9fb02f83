// Runs collectives on CUDA memory with NCCL. Engine thread only.
//
// One stream of this rank's GPU runs everything, in the global order of the calls, so members that share
// several process sets cannot deadlock. call_stages.h lists the stages of a call and says which follows which
// (pure); none of them waits on the host. launch.h puts a call on the stream.
//
// At the end Done carries the event after the results. One call at a time is on its way to the stream. Many
// are launched, but no more than the queue of a stream holds (launched.h): behind a full queue the engine
// thread would wait inside of CUDA, and no longer notice that a member was lost.
//
// When a process set is new, each member allocates memory for packed tensors, as much as a call may need, and
// tells the others how much it got. A call that needs more than the least of these is launched in parts.
//
// If the member infos show that the members of a process set cannot use NCCL together (two of them have one
// GPU), all calls of that set go through host memory: the backend that runs the host syncs runs them as well.
//
// A failure of NCCL ends the epoch (device_failure()), also one that a lost member has caused. abort() aborts
// all communicators, so that what is launched ends, and its events happen with the failure.
//
// Example: 8 ranks with a GPU each, and a bucket of four float32 gradients of 1 MiB. In the first call of the
// world the members set it up: each tells which GPU it has, NCCL connects them, and 12 small allreduces
// measure the fabric. Every call, the first one after that, does this: the stream waits for the ready events
// of the four tensors, packs 4 MiB, runs one ncclAllReduce of 1,048,576 elements, and unpacks; the engine
// goes on as soon as this is enqueued. In a learned plan the members first meet at a barrier on the host.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/nccl/call_stages.h"
#include "rueda/backend/nccl/communicators.h"
#include "rueda/backend/nccl/host_sync.h"
#include "rueda/backend/nccl/launch.h"
#include "rueda/backend/nccl/launched.h"
#include "rueda/backend/nccl/levels.h"
#include "rueda/backend/nccl/library.h"
#include "rueda/backend/nccl/probe_run.h"
#include "rueda/backend/nccl/sets.h"
#include "rueda/memory/cuda/deferred_frees.h"
#include "rueda/memory/cuda/device.h"

namespace rueda::backend {

struct NcclOptions {
  std::shared_ptr<const nccl::Library> library;
  std::shared_ptr<cuda::Devices> devices;
  // Runs the host syncs, in host memory on channels of its own, and in device memory the calls of members
  // that cannot use NCCL. Null in a job of one rank.
  std::unique_ptr<Backend> host;
  size_t pack_bytes = 64 << 20;   // of the tensors of one call; the same on every rank
  Rank local_rank = 0;            // chooses the GPU of a rank that joins before it has used one
  Nanos patience = 30 * kSecond;  // of connecting: ConnectionTime
  // Where the members of a group run, if allreduces are to be hierarchical where they can be; otherwise
  // empty. The same on every rank.
  std::function<schedule::Topology(const Group&)> topology = {};
};

class NcclBackend final : public Backend, public Cancellation {
 public:
  explicit NcclBackend(NcclOptions options);
  ~NcclBackend() override;
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] std::string_view gpu_operations() const override { return "nccl"; }
  [[nodiscard]] bool accepts(const Group&, const schedule::Spec& spec, const Memory& memory) const override {
    return memory.kind == MemoryKind::kDevice && nccl::runs(spec);
  }
  // They are copied, but on a device that takes less time than a launch of its own, up to tens of MiB.
  [[nodiscard]] bool copies_fused(const Group&, const schedule::Spec&) const override { return false; }
  // Null: the members have no way to meet.
  [[nodiscard]] Cancellation* cancellation() override { return host_sync_.are_possible() ? this : nullptr; }
  [[nodiscard]] bool keeps_order() const override { return false; }
  [[nodiscard]] int64_t bucket_bytes(const Group& group, const schedule::Spec&) const override {
    return group.id == 0 ? bucket_bytes_ : 0;
  }
  [[nodiscard]] bool has_room(uint64_t) const override {
    return stage_ == nccl::Stage::kIdle && host_sync_.has_room();
  }
  void start(const Call& call) override;
  bool progress(std::vector<Done>& done) override;
  [[nodiscard]] bool is_idle() const override;
  [[nodiscard]] Status device_failure() const override;
  void abort(const Status& why) override;
  bool prepare_sleep() override;
  void wake_up() override { host_sync_.wake_up(); }

  std::vector<int32_t> pause(CallId call) override;
  void resume(CallId call) override;
  void cancel(CallId call, std::span<const int32_t> arrivals) override;
  void discard(const Call& call, std::span<const int32_t> arrivals) override;

 private:
  void begin(const Call& call);
  // The stage of the call: whether it has ended; what its end leaves behind; what begins the next one.
  Result<bool> has_ended();
  Status leave();
  Status enter(nccl::Stage stage);
  Status go_on();
  [[nodiscard]] nccl::Facts facts() const;

  void look_up();
  void set_up();
  Status prepare_gpu(nccl::MemberInfo& mine);
  Status connect();
  Status begin_probe_call();
  Status end_probe();
  void hand_over();
  Status finish();
  void end(const Status& status, std::shared_ptr<CudaEvent> event = nullptr);
  void watch_launched();
  // Who shares a communicator for the call.
  [[nodiscard]] const Group& connected() const { return levels_ == nullptr ? *call_.group : levels_->inside; }
  [[nodiscard]] bool is_met(CallId call) const { return stage_ == nccl::Stage::kSyncing && call_.id == call; }

  nccl::Launched launched_;
  cuda::DeferredFrees frees_{launched_.is_busy()};  // destroyed after all that has memory
  NcclOptions options_;
  nccl::HostSync host_sync_;
  nccl::Sets sets_;
  nccl::Communicators communicators_;
  std::unique_ptr<nccl::Launch> launch_;  // once a GPU is used
  int64_t bucket_bytes_ = 0;              // of the world; 0: not known

  // The call on its way to the stream.
  nccl::Stage stage_ = nccl::Stage::kIdle;
  Call call_;
  nccl::Set* set_ = nullptr;              // its process set
  const nccl::Levels* levels_ = nullptr;  // if it is reduced hierarchically
  nccl::Communicator* communicator_ = nullptr;
  std::optional<size_t> culprit_;                   // the segment that cannot be used, if one cannot
  std::optional<nccl::ConnectionTime> connection_;  // of kConnecting
  std::optional<nccl::ProbeRun> probe_;             // of kProbing
  Segment share_;                                   // of kBetween

  std::vector<Done> done_;
  Nanos next_look_ = 0;  // at the communicators
  Nanos next_watch_ = 0;
  Status broken_;  // why nothing can run any more
};

}  // namespace rueda::backend
