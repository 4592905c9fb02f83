#include "rueda/backend/mpi/device_mpi.h"

#include <algorithm>
#include <utility>

#include "rueda/backend/cuda_tensor.h"
#include "rueda/base/check.h"
#include "rueda/base/clock.h"
#include "rueda/base/keep.h"

namespace rueda::backend::mpi {
namespace {

constexpr Nanos kAbortTime = 2 * kSecond;  // copies on a device end within milliseconds, unless it hangs

// kPeerLost: the job waits for the verdict of rank 0, which may name a lost rank.
Status of_the_job(const Status& status) { return {Code::kPeerLost, status.why}; }

}  // namespace

DeviceMpiBackend::DeviceMpiBackend(DeviceMpiOptions options)
    : options_(std::move(options)), communicators_(options_.process, options_.team) {}

DeviceMpiBackend::~DeviceMpiBackend() {
  if (worker_.is_running()) {
    options_.process->abandon();
    keep_until_exit(std::move(gpu_));
  }
  if (gpu_ == nullptr) return;
  const Deadline deadline = Deadline::after(kAbortTime);
  for (const auto& event : launched_) (void)event->wait(deadline);
}

bool DeviceMpiBackend::accepts(const Group& group, const schedule::Spec& spec, const Memory& memory) const {
  if (memory.kind != MemoryKind::kDevice || group.size() < 2) return false;
  if (is_reduction(spec.what) && spec.op == ReduceOp::kAdasum) return false;
  if (spec.what == Collective::kBarrier || spec.what == Collective::kJoin) return false;
  return counts_fit(spec);
}

void DeviceMpiBackend::start(const Call& call) {
  RUEDA_CHECK(state_ == CallState::kIdle && !call.may_be_cancelled, "one call at a time, and for good");
  call_ = call;
  culprit_.reset();
  if (!broken_.is_ok()) return end(broken_);
  Status status = check_tensors(*options_.devices, call_.segments, culprit_);
  if (status.is_ok()) status = open_gpu();
  if (!status.is_ok()) return end({Code::kUnavailable, status.why});
  state_ = CallState::kConnecting;
}

// The first call decides which GPU is this rank's: that of its tensors.
Status DeviceMpiBackend::open_gpu() {
  if (gpu_ != nullptr) return Status::ok();
  auto opened = Gpu::open(*options_.devices, call_.segments, options_.local_rank, Copies::kAll);
  if (!opened.is_ok()) return opened.status();
  gpu_ = std::move(opened).value();
  return Status::ok();
}

// False if there is nothing to do at once.
Result<bool> DeviceMpiBackend::advance() {
  switch (state_) {
    case CallState::kIdle:
      return false;
    case CallState::kConnecting: {
      const Result<std::optional<Comm>> comm = communicators_.find(*call_.group);
      if (!comm.is_ok()) return of_the_job(comm.status());
      if (!comm.value()) return false;
      const Status status = load(*comm.value());
      return status.is_ok() ? Result<bool>(true) : Result<bool>(status);
    }
    case CallState::kLoading: {
      const std::optional<Status> outcome = loaded_->outcome();
      if (!outcome) return false;
      const Status status = outcome->is_ok() ? run() : Status(Code::kUnavailable, outcome->why);
      return status.is_ok() ? Result<bool>(true) : Result<bool>(status);
    }
    case CallState::kRunning: {
      const std::optional<Status> outcome = worker_.take_outcome();
      if (!outcome) return false;
      const Status status = outcome->is_ok() ? store() : of_the_job(*outcome);
      return status.is_ok() ? Result<bool>(true) : Result<bool>(status);
    }
  }
  return false;
}

Status DeviceMpiBackend::load(Comm comm) {
  comm_ = comm;
  const cuda::ScopedContext context(*gpu_->device());
  if (!context.status().is_ok()) return context.status();
  call_.note(Activity::kPack);
  before_ = {.factor = call_.prescale};
  if (const Status status = gpu_->packing().load(call_, before_); !status.is_ok()) return status;
  if (call_.spec.what == Collective::kBroadcast && call_.spec.root == call_.group->me) {
    for (const DeviceRun& run : gpu_->packing().runs()) {  // MPI_Bcast has one buffer
      const size_t bytes = static_cast<size_t>(run.count) * size_of(call_.spec.dtype);
      if (bytes == 0) continue;
      if (const Status status = gpu_->stream().copy(run.output, run.input, bytes); !status.is_ok())
        return status;
    }
  }
  Result<std::shared_ptr<cuda::Event>> event = gpu_->record();
  if (!event.is_ok()) return event.status();
  loaded_ = std::move(event).value();
  state_ = CallState::kLoading;
  return Status::ok();
}

// The inputs are in memory of this backend.
Status DeviceMpiBackend::run() {
  const schedule::Spec& spec = call_.spec;
  Result<Op> op = Op{};
  if (is_reduction(spec.what)) op = ops_.find(options_.process->library(), spec.op, spec.dtype);
  if (!op.is_ok()) return op.status();
  BlockingCall work{.what = spec.what,
                    .me = call_.group->me,
                    .size = call_.group->size(),
                    .root = spec.root,
                    .element_bytes = size_of(spec.dtype),
                    .terms = {.comm = comm_, .type = type_of(spec.dtype), .op = op.value(), .peer = -1},
                    .runs = {},
                    .counts = {}};
  for (const DeviceRun& run : gpu_->packing().runs()) {
    work.runs.push_back(run);
    work.counts.emplace_back(run.counts.begin(), run.counts.end());
  }
  call_.note(Activity::kTransfer);
  state_ = CallState::kRunning;
  return worker_.begin([process = options_.process, gpu = gpu_, work = std::move(work)]() -> Status {
    const cuda::ScopedContext context(*gpu->device());  // MPI copies in the current one
    if (!context.status().is_ok()) return context.status();
    return mpi::run(process->library(), work);
  });
}

// MPI is done.
Status DeviceMpiBackend::store() {
  const cuda::ScopedContext context(*gpu_->device());
  if (!context.status().is_ok()) return context.status();
  call_.note(Activity::kUnpack);
  if (const Status status = gpu_->packing().store(call_, call_.spec.scale); !status.is_ok()) return status;
  const auto launched = gpu_->launched(*options_.devices, call_.segments);
  if (!launched.is_ok()) return launched.status();
  launched_.push_back(launched.value());
  end(Status::ok(), launched.value());
  return Status::ok();
}

void DeviceMpiBackend::end(const Status& status, std::shared_ptr<CudaEvent> event) {
  if (!status.is_ok() && broken_.is_ok()) broken_ = status;  // the other members go on without this rank
  state_ = CallState::kIdle;
  done_.push_back(
      {.id = call_.id, .status = status, .how = "mpi", .event = std::move(event), .segment = culprit_});
}

bool DeviceMpiBackend::progress(std::vector<Done>& done) {
  bool moved = false;
  while (true) {
    const Result<bool> advanced = advance();
    if (!advanced.is_ok()) end(advanced.status());
    if (advanced.is_ok() && !advanced.value()) break;
    moved = true;
  }
  watch_launched();
  for (Done& each : std::exchange(done_, {})) {
    done.push_back(std::move(each));
    moved = true;
  }
  return moved;
}

void DeviceMpiBackend::watch_launched() {
  while (!launched_.empty()) {
    const std::optional<Status> outcome = launched_.front()->outcome();
    if (!outcome) return;
    if (!outcome->is_ok() && device_fault_.is_ok()) device_fault_ = *outcome;
    launched_.pop_front();
  }
}

bool DeviceMpiBackend::is_idle() const {
  return state_ == CallState::kIdle && done_.empty() &&
         std::ranges::all_of(launched_, [](const auto& event) { return event->outcome().has_value(); });
}

void DeviceMpiBackend::abort(const Status& why) {
  RUEDA_CHECK(!why.is_ok(), "an abort needs a reason");
  broken_ = why;
  const bool is_enqueueing = state_ == CallState::kLoading;
  state_ = CallState::kIdle;
  done_.clear();
  // Without one of its ranks, MPI would wait in its next collective, and in MPI_Finalize, for good.
  if (worker_.is_running() || communicators_.is_making() || why.code == Code::kPeerLost)
    options_.process->abandon();
  if (gpu_ == nullptr) return;
  const Deadline deadline = Deadline::after(kAbortTime);
  if (is_enqueueing) launched_.push_back(std::make_shared<CudaEvent>(std::vector{loaded_}));
  for (const auto& event : launched_) (void)event->wait(deadline);
  for (const auto& event : launched_) event->fail(why);
  launched_.clear();
}

}  // namespace rueda::backend::mpi
