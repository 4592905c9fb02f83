// Gives tensors in CUDA memory to an MPI that takes it, so that nothing passes through host memory of rueda.
// It is used only where RUEDA_GPU_OPERATIONS=mpi asks for MPI, all libraries say that they take CUDA memory,
// and MPI grants MPI_THREAD_MULTIPLE, because a thread of its own calls it. Engine thread only.
//
// A call passes through these states; none of them waits on the host:
//
//   kConnecting   MPI makes the communicator of a process set
//   kLoading      the stream waits for the ready events of the tensors, copies them to memory of this backend
//                 and scales them. MPI reads when the event after that has happened, which the engine looks
//                 at
//   kRunning      the worker is inside MPI
//
// Then results are scaled and copied to the tensors on the stream, and Done carries the event after that.
//
// As in mpi.h, all memory that MPI sees belongs to this backend, and is kept until the process ends if a job
// fails while MPI may still write it.
#pragma once

#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/cuda_event.h"
#include "rueda/backend/gpu.h"
#include "rueda/backend/mpi/blocking_calls.h"
#include "rueda/backend/mpi/communicators.h"
#include "rueda/backend/mpi/process.h"
#include "rueda/backend/mpi/reduce_functions.h"
#include "rueda/memory/cuda/deferred_frees.h"
#include "rueda/memory/cuda/device.h"

namespace rueda::backend::mpi {

struct DeviceMpiOptions {
  std::shared_ptr<Process> process;
  Team team;  // nobody else calls MPI with its communicator
  std::shared_ptr<cuda::Devices> devices;
  Rank local_rank = 0;  // chooses the GPU of a rank that joins before it has used one
};

class DeviceMpiBackend final : public Backend {
 public:
  explicit DeviceMpiBackend(DeviceMpiOptions options);
  ~DeviceMpiBackend() override;
  DeviceMpiBackend(const DeviceMpiBackend&) = delete;
  DeviceMpiBackend& operator=(const DeviceMpiBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "mpi"; }
  [[nodiscard]] std::string_view gpu_operations() const override { return "mpi"; }
  [[nodiscard]] bool accepts(const Group& group, const schedule::Spec& spec,
                             const Memory& memory) const override;
  [[nodiscard]] bool keeps_order() const override { return false; }
  [[nodiscard]] bool has_room(uint64_t /*order*/) const override { return state_ == CallState::kIdle; }
  void start(const Call& call) override;
  bool progress(std::vector<Done>& done) override;
  [[nodiscard]] bool is_idle() const override;
  [[nodiscard]] Status device_failure() const override { return device_fault_; }
  void abort(const Status& why) override;
  [[nodiscard]] bool needs_polling() const override { return state_ != CallState::kIdle; }
  bool prepare_sleep() override { return state_ == CallState::kIdle && done_.empty(); }

 private:
  enum class CallState : uint8_t { kIdle, kConnecting, kLoading, kRunning };

  Status open_gpu();
  Result<bool> advance();
  Status load(Comm comm);
  Status run();
  Status store();
  void end(const Status& status, std::shared_ptr<CudaEvent> event = nullptr);
  void watch_launched();

  cuda::DeferredFrees frees_;  // first: destroyed last
  DeviceMpiOptions options_;
  Communicators communicators_;
  ReduceOps ops_;
  std::shared_ptr<Gpu> gpu_;  // once it is used; shared with the worker
  Worker worker_;

  CallState state_ = CallState::kIdle;
  Call call_;
  std::optional<size_t> culprit_;  // the segment that cannot be used, if one cannot
  Scale before_;
  Comm comm_;
  std::shared_ptr<cuda::Event> loaded_;

  std::vector<Done> done_;
  std::deque<std::shared_ptr<CudaEvent>> launched_;  // those that have not happened
  Status broken_;                                    // why nothing can run any more
  Status device_fault_;
};

}  // namespace rueda::backend::mpi
