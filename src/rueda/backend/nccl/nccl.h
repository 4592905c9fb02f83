// Runs collectives on CUDA memory with NCCL. Engine thread only.
//
// One stream of this rank's GPU runs everything, in the global order of the calls, so members that share
// several process sets cannot deadlock. A call passes through these states; none of them waits on the host:
//
//   kMeeting      the call may be taken back: it goes on when all members have come (meetings.h)
//   kIntroducing  the process set is new here: the members tell which GPU they have, and member 0 makes an id
//   kConnecting   NCCL connects the members, in the background
//   kProbing      the process set is the world: a few allreduces measure the fabric (probe.h), once
//   kAgreeing     an Adasum needs more memory than any before: the members say whether they have it
//
//   kWaiting      the queue of the stream has no room for the next part of the call
//
//   kLaunching    the stream waits for the tensors, packs and scales; NCCL enqueues its group, in the
//   background
//
//   kBetween      of a hierarchical allreduce (levels.h): NCCL has been given its part inside the host, and
//   the backend of the meetings adds the shares between hosts, through pinned memory; kLaunching follows
//   again
//
// An Adasum is launched level by level of its tree (adasum.h): kLaunching comes once for each.
//
// Then results are scaled and unpacked on the stream, and Done carries the event after that. One call at a
// time is on its way to the stream. Many are launched, but no more than the queue of a stream holds: behind a
// full queue the engine thread would wait inside of CUDA, and no longer notice that a member was lost.
//
// When a process set is new, each member allocates memory for packed tensors, as much as a call may need, and
// tells the others how much it got. A call that needs more than the least of these is launched in parts.
//
// If the introductions show that the members of a process set cannot use NCCL together (two of them have one
// GPU), all calls of that set go through host memory: the backend that runs the meetings runs them as well.
//
// A failure of NCCL, of a member that was lost as well, ends the epoch (device_failure()). abort() aborts all
// communicators, so that what is launched ends, and its events happen with the failure.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/cuda_event.h"
#include "rueda/backend/gpu.h"
#include "rueda/backend/nccl/adasum.h"
#include "rueda/backend/nccl/communicators.h"
#include "rueda/backend/nccl/levels.h"
#include "rueda/backend/nccl/library.h"
#include "rueda/backend/nccl/meetings.h"
#include "rueda/backend/nccl/probe.h"
#include "rueda/memory/cuda/deferred_frees.h"
#include "rueda/memory/cuda/device.h"

namespace rueda::backend {

struct NcclOptions {
  std::shared_ptr<const nccl::Library> library;
  std::shared_ptr<cuda::Devices> devices;
  // Runs the meetings, in host memory on channels of its own, and in device memory the calls of members that
  // cannot use NCCL. Null in a job of one rank.
  std::unique_ptr<Backend> host;
  size_t pack_bytes = 64 << 20;  // of the tensors of one call; the same on every rank
  Rank local_rank = 0;           // chooses the GPU of a rank that joins before it has used one
  // A communicator that takes longer to connect is warned of; it has kPatience times as long before the
  // call fails. Thousands of ranks may need minutes, and a lost rank is noticed without this.
  Nanos patience = 30 * kSecond;
  // Where the members of a group run, if allreduces are to be hierarchical where they can be; otherwise
  // empty. The same on every rank.
  std::function<schedule::Topology(const Group&)> topology = {};
};

class NcclBackend final : public Backend {
 public:
  explicit NcclBackend(NcclOptions options);
  ~NcclBackend() override;
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;

  static constexpr int kPatience = 4;
  // A call, or a part of one, is held back while it and what is launched would take more entries in the queue
  // of the stream. CUDA has 1024.
  static constexpr size_t kMostQueued = 900;
  // An allreduce of more tensors has several parts: each may have an event that the stream waits for.
  static constexpr size_t kMostTensors = 512;

  // Whether NCCL can run such a call at all.
  [[nodiscard]] static bool runs(const schedule::Spec& spec);

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] std::string_view gpu_operations() const override { return "nccl"; }
  [[nodiscard]] bool accepts(const Group&, const schedule::Spec& spec, const Memory& memory) const override {
    return memory.kind == MemoryKind::kDevice && runs(spec);
  }
  // They are copied, but on a device that takes less time than a launch of its own, up to tens of MiB.
  [[nodiscard]] bool copies_fused(const Group&, const schedule::Spec&) const override { return false; }
  [[nodiscard]] bool can_take_back(const Group&, const schedule::Spec&) const override {
    return meetings_.are_possible();
  }
  [[nodiscard]] int64_t bucket_bytes(const Group& group, const schedule::Spec&) const override {
    return group.id == 0 ? bucket_bytes_ : 0;
  }
  [[nodiscard]] bool has_room(uint64_t) const override {
    return state_ == State::kIdle && meetings_.has_room();
  }
  void start(const Call& call) override;
  bool progress(std::vector<Done>& done) override;
  [[nodiscard]] bool is_idle() const override;
  [[nodiscard]] Status device_failure() const override;
  void abort(const Status& why) override;
  bool prepare_sleep() override;
  void wake_up() override { meetings_.wake_up(); }

  std::vector<int32_t> pause(CallId call) override;
  void resume(CallId call) override;
  void take_back(CallId call, std::span<const int32_t> arrivals) override;
  void discard(const Call& call, std::span<const int32_t> arrivals) override;

 private:
  enum class State : uint8_t {
    kIdle,
    kMeeting,
    kLeaving,
    kIntroducing,
    kConnecting,
    kProbing,
    kAgreeing,
    kWaiting,
    kLaunching,
    kBetween
  };

  // A call that was launched.
  struct Launched {
    std::shared_ptr<CudaEvent> event;
    size_t entries = 0;  // in the queue of the stream, about
  };

  void begin(const Call& call);
  Status check_tensors();
  bool advance();
  bool finish_meeting();
  Status go_on();
  void hand_over(const std::string& why);
  void introduce();
  Status prepare_gpu(nccl::Introduction& mine);
  const nccl::Levels* levels();
  Status decide();
  Status wait_for_connection();
  Status begin_probe();
  Status launch_probe();
  Result<bool> probe();
  Status end_probe();
  Status launch();
  [[nodiscard]] size_t part_size() const;
  Status keep_enqueued();
  [[nodiscard]] size_t bytes_for_adasum();
  Status agree(size_t bytes);
  Status decide_adasum();
  Status begin_adasum();
  Result<bool> climb();
  Status launch(std::span<const nccl::Step> steps);
  Status reduce_between();
  Status gather();
  nccl::ResultCode issue(const nccl::Step& step);
  Status complete();
  void end(const Status& status, std::shared_ptr<CudaEvent> event = nullptr);
  void keep(std::shared_ptr<CudaEvent> event);
  void watch_launched();
  static bool have_happened(const std::deque<Launched>& launched, Deadline deadline);
  [[nodiscard]] size_t entries_of_part() const;
  [[nodiscard]] bool is_full() const { return queued_ > 0 && queued_ + part_entries_ > kMostQueued; }
  static std::pair<int32_t, std::vector<Rank>> key_of(const Group& group) {
    return {group.id, group.members};
  }
  // NCCL is asked again and again what has become of what it was given.
  [[nodiscard]] bool is_asking_nccl() const {
    return state_ == State::kConnecting || state_ == State::kProbing || state_ == State::kLaunching;
  }
  [[nodiscard]] bool is_adasum() const {
    return call_.spec.what == Collective::kAllreduce && call_.spec.op == ReduceOp::kAdasum;
  }
  // Who shares a communicator for the call.
  [[nodiscard]] const Group& connected() const {
    return by_levels_ == nullptr ? *call_.group : by_levels_->inside;
  }
  [[nodiscard]] const nccl::Functions& nccl() const { return options_.library->call(); }

  // What the thread that frees memory asks: CUDA would let it, and perhaps others, wait for NCCL's work.
  struct AtWork {
    std::atomic<bool> is_launching = false;
    std::mutex mutex;
    std::shared_ptr<CudaEvent> last;  // of what was launched
    [[nodiscard]] bool is_busy();
  };
  const std::shared_ptr<AtWork> at_work_ = std::make_shared<AtWork>();
  cuda::DeferredFrees frees_{[at_work = at_work_] { return at_work->is_busy(); }};  // destroyed last
  NcclOptions options_;
  nccl::Meetings meetings_;
  nccl::Communicators communicators_;
  std::unique_ptr<Gpu> gpu_;  // once it is used
  // Process sets whose members cannot use NCCL together, and why.
  std::map<std::pair<int32_t, std::vector<Rank>>, std::string> refused_;

  // The levels of each process set that has reduced; those of one level have none.
  std::map<std::pair<int32_t, std::vector<Rank>>, std::optional<nccl::Levels>> levels_;

  int64_t bucket_bytes_ = 0;  // of the world; 0: not known
  // While it is found out:
  std::optional<nccl::Probe> probe_;
  std::shared_ptr<cuda::Event> probed_;  // after the call that was launched; null: NCCL has not enqueued it
  Nanos probe_began_ = 0;

  // The call on its way to the stream.
  State state_ = State::kIdle;
  Call call_;
  Call part_;                      // of it, which is on its way: the same with fewer segments
  size_t parts_done_ = 0;          // segments of the parts before it
  size_t part_entries_ = 0;        // that the part takes in the queue of the stream, at most
  size_t entries_ = 0;             // that its parts take there until now and are not counted in queued_
  std::optional<size_t> culprit_;  // the segment that cannot be used, if one cannot
  nccl::Communicator* communicator_ = nullptr;
  nccl::Scaling scaling_;
  const nccl::Levels* by_levels_ = nullptr;  // the call is reduced hierarchically
  std::unique_ptr<nccl::Adasum> adasum_;     // once it is used
  // For which size of an Adasum all members of a process set have memory.
  std::map<std::pair<int32_t, std::vector<Rank>>, size_t> agreed_;
  size_t needed_ = 0;                     // by the Adasum on its way; 0: not known
  bool has_warned_ = false;               // of one that is staged
  bool is_gathering_ = false;             // by levels: the shares have been added between hosts
  std::shared_ptr<cuda::Event> reduced_;  // my share of the sums of my host is there
  Deadline deadline_ = Deadline::at(0);   // of kConnecting and kProbing
  std::optional<Deadline> warning_;       // of kConnecting; empty: has been given

  std::vector<Done> done_;
  std::deque<Launched> launched_;  // those whose event has not happened
  size_t queued_ = 0;              // entries of the stream's queue that they take
  Nanos next_look_ = 0;            // at the communicators
  Status broken_;                  // why nothing can run any more
};

}  // namespace rueda::backend
