#include "rueda/backend/nccl/nccl.h"

#include <sched.h>

#include <algorithm>
#include <optional>

#include "rueda/backend/cuda_tensor.h"
#include "rueda/backend/nccl/identity.h"
#include "rueda/base/check.h"
#include "rueda/base/log.h"

namespace rueda::backend {
namespace {

constexpr Nanos kLookEvery = 10 * kMillisecond;  // at the communicators, for members that were lost
constexpr Nanos kAbortTime = 4 * kSecond;        // how long an abort is waited for
constexpr Nanos kFinishTime = 5 * kSecond;       // the same for an orderly end

}  // namespace

NcclBackend::NcclBackend(NcclOptions options)
    : options_(std::move(options)), meetings_(std::move(options_.host)), communicators_(options_.library) {}

// Waits until all that was launched has ended; false at the deadline.
bool NcclBackend::have_happened(const std::deque<Launched>& launched, Deadline deadline) {
  return std::ranges::all_of(launched,
                             [&](const Launched& one) { return one.event->wait(deadline).has_value(); });
}

NcclBackend::~NcclBackend() {
  if (gpu_ == nullptr) return;
  const cuda::ScopedContext context(*gpu_->device());
  const Deadline deadline = Deadline::after(kFinishTime);
  (void)have_happened(launched_, deadline);
  communicators_.finish(deadline);
}

bool NcclBackend::runs(const schedule::Spec& spec) {
  switch (spec.what) {
    case Collective::kAllreduce:
    case Collective::kReducescatter:
      if (spec.what == Collective::kAllreduce && spec.op == ReduceOp::kAdasum) return is_floating(spec.dtype);
      return nccl::reduced_type(spec.dtype) && nccl::reduced_op(spec.op);
    case Collective::kAllgather:
    case Collective::kBroadcast:
    case Collective::kAlltoall:
      return true;
    case Collective::kBarrier:
    case Collective::kJoin:
      break;
  }
  return false;
}

void NcclBackend::begin(const Call& call) {
  RUEDA_CHECK(has_room(call.order), "one call at a time is on its way to the stream");
  call_ = call;
  parts_done_ = 0;
  entries_ = 0;
  needed_ = 0;
  culprit_.reset();
  communicator_ = nullptr;
  by_levels_ = nullptr;
}

void NcclBackend::start(const Call& call) {
  begin(call);
  if (!broken_.is_ok()) return end(broken_);
  if (const Status fault = check_tensors(); !fault.is_ok()) return end(fault);
  if (call.may_be_taken_back) {
    state_ = State::kMeeting;
    return meetings_.begin_for(call_);
  }
  if (const Status status = go_on(); !status.is_ok()) end(status);
}

// On this rank alone. NCCL itself would fail on the device, or take part in what is being captured.
Status NcclBackend::check_tensors() {
  TensorChecks tensors;
  for (size_t i = 0; i < call_.segments.size(); ++i) {
    const Segment& segment = call_.segments[i];
    if (segment.memory.device < 0) continue;  // a rank that has joined
    culprit_ = i;
    const auto device = options_.devices->get(segment.memory.device);
    if (!device.is_ok()) return {Code::kUnavailable, device.status().why};
    if (const Status fault = tensors.check(device.value(), segment); !fault.is_ok()) return fault;
  }
  culprit_.reset();
  return Status::ok();
}

void NcclBackend::discard(const Call& call, std::span<const int32_t> arrivals) {
  begin(call);
  if (!broken_.is_ok()) return end(broken_);
  state_ = State::kLeaving;
  meetings_.discard(call_, arrivals);
}

// All members have come, or need not.
Status NcclBackend::go_on() {
  const auto refused = refused_.find(key_of(*call_.group));
  if (refused != refused_.end()) {
    hand_over(refused->second);
    return Status::ok();
  }
  by_levels_ = levels();
  communicator_ = communicators_.find(*call_.group, connected());
  if (communicator_ != nullptr) return launch();
  introduce();
  return Status::ok();
}

void NcclBackend::hand_over(const std::string& why) {
  state_ = State::kIdle;
  if (meetings_.hand_over(call_)) return;
  const Status status(Code::kUnsupported, why + " Copy the tensor to host memory first.");
  done_.push_back({.id = call_.id, .status = status, .how = "nccl"});  // the same on every member
}

void NcclBackend::introduce() {
  nccl::Introduction mine;
  if (const Status status = prepare_gpu(mine); !status.is_ok()) mine.set_why_not(status.why);
  state_ = State::kIntroducing;
  meetings_.begin_for(*call_.group, mine);
}

// The first call decides which GPU is this rank's: that of its tensors.
Status NcclBackend::prepare_gpu(nccl::Introduction& mine) {
  if (gpu_ == nullptr) {
    const auto has_tensor = [](const Segment& one) { return one.input != nullptr || one.output != nullptr; };
    const auto tensor = std::ranges::find_if(call_.segments, has_tensor);
    const Result<int32_t> ordinal =
        tensor != call_.segments.end() ? Result<int32_t>(tensor->memory.device)
                                       : cuda::usual_ordinal(options_.devices->driver(), options_.local_rank);
    if (!ordinal.is_ok()) return ordinal.status();
    auto opened = Gpu::open(*options_.devices, ordinal.value());
    if (!opened.is_ok()) return opened.status();
    gpu_ = std::move(opened).value();
  }
  mine.set_gpu(nccl::identity_of(*gpu_->device(), options_.library->version()));
  const cuda::ScopedContext context(*gpu_->device());
  if (!context.status().is_ok()) return context.status();
  mine.pack_bytes = static_cast<int64_t>(gpu_->packing().prepare(options_.pack_bytes));
  if (connected().me != 0) return Status::ok();
  return options_.library->check(nccl().GetUniqueId(&mine.id), "ncclGetUniqueId");
}

// All members have introduced themselves.
Status NcclBackend::decide() {
  const Group& group = *call_.group;
  const std::string refusal = nccl::refusal_of(group, meetings_.introductions());
  if (!refusal.empty()) {
    const bool is_new =
        std::ranges::none_of(refused_, [&](const auto& one) { return one.second == refusal; });
    if (group.me == 0 && is_new)
      RUEDA_LOG(kWarning, refusal + " GPU tensors of " + nccl::describe(group) + " go through host memory.");
    refused_[key_of(group)] = refusal;
    if (gpu_ != nullptr && communicators_.is_empty()) gpu_->packing().give_up_unused();
    hand_over(refusal);
    return Status::ok();
  }
  const cuda::ScopedContext context(*gpu_->device());
  if (!context.status().is_ok()) return context.status();
  const std::span<const nccl::Introduction> members = meetings_.introductions();
  const size_t first = static_cast<size_t>(std::ranges::find(group.members, connected().members.front()) -
                                           group.members.begin());
  const auto begun =
      communicators_.begin(members[first].id, group, connected(), nccl::pack_bytes_of(members));
  if (!begun.is_ok()) return begun.status();
  communicator_ = begun.value();
  state_ = State::kConnecting;
  deadline_ = Deadline::after(kPatience * options_.patience);
  warning_ = Deadline::after(options_.patience);
  return Status::ok();
}

// NCCL is still connecting the members.
Status NcclBackend::wait_for_connection() {
  const auto sentence = [&](Nanos time) {
    return "NCCL has not connected " + communicator_->name() + " within " + std::to_string(time / kSecond) +
           " s, although all of them have begun; set NCCL_DEBUG=INFO, and NCCL_SOCKET_IFNAME if the hosts "
           "have several networks.";
  };
  if (deadline_.is_past()) return {Code::kTimeout, sentence(kPatience * options_.patience)};
  if (!warning_ || !warning_->is_past()) return Status::ok();
  warning_.reset();
  if (connected().me == 0)
    RUEDA_LOG(kWarning, sentence(options_.patience) + " The job waits until " +
                            std::to_string(kPatience * options_.patience / kSecond) + " s have passed.");
  return Status::ok();
}

void NcclBackend::end(const Status& status, std::shared_ptr<CudaEvent> event) {
  if (!status.is_ok() && broken_.is_ok()) broken_ = status;  // the other members go on without this rank
  state_ = State::kIdle;
  at_work_->is_launching = false;
  done_.push_back({.id = call_.id,
                   .status = status,
                   .how = is_adasum()             ? "nccl_adasum"
                          : by_levels_ == nullptr ? "nccl"
                                                  : "nccl_hierarchical",
                   .event = std::move(event),
                   .segment = culprit_});
}

// False if there is nothing to do at once.
bool NcclBackend::advance() {
  if (state_ == State::kIdle) return false;
  if (state_ == State::kWaiting) {
    if (is_full()) return false;
    if (const Status status = launch(); !status.is_ok()) end(status);
    return true;
  }
  if (!is_asking_nccl()) return finish_meeting();
  const Result<bool> settled = communicator_->is_settled();
  Status status = settled.status();
  if (status.is_ok() && !settled.value()) {
    if (state_ == State::kConnecting) status = wait_for_connection();
    if (status.is_ok()) return false;
  }
  if (status.is_ok() && state_ == State::kProbing) {
    const Result<bool> moved = probe();
    if (moved.is_ok() && !moved.value()) return false;
    status = moved.status();
  } else if (status.is_ok()) {
    status = state_ == State::kConnecting ? begin_probe() : complete();
  }
  if (!status.is_ok()) end(status);
  return true;
}

bool NcclBackend::finish_meeting() {
  const std::optional<Status> ended = meetings_.take_outcome();
  if (!ended) return false;
  Status status = *ended;
  if (state_ == State::kLeaving) {
    end(status);
    return true;
  }
  if (status.is_ok() && state_ == State::kBetween)
    status = gather();
  else if (status.is_ok() && state_ == State::kAgreeing)
    status = decide_adasum();
  else if (status.is_ok())
    status = state_ == State::kMeeting ? go_on() : decide();
  if (!status.is_ok()) end(status);
  return true;
}

bool NcclBackend::progress(std::vector<Done>& done) {
  bool moved = meetings_.progress(done);
  watch_launched();
  while (advance()) moved = true;
  for (Done& each : std::exchange(done_, {})) {
    done.push_back(std::move(each));
    moved = true;
  }
  return moved;
}

bool NcclBackend::AtWork::is_busy() {
  if (is_launching) return true;
  const std::lock_guard lock(mutex);
  if (last != nullptr && last->outcome()) last.reset();
  return last != nullptr;
}

void NcclBackend::keep(std::shared_ptr<CudaEvent> event) {
  {
    const std::lock_guard lock(at_work_->mutex);
    at_work_->last = event;
  }
  launched_.push_back({.event = std::move(event), .entries = entries_});
  queued_ += entries_;
}

void NcclBackend::watch_launched() {
  while (!launched_.empty()) {
    const std::optional<Status> outcome = launched_.front().event->outcome();
    if (!outcome) break;
    if (broken_.is_ok()) broken_ = *outcome;
    queued_ -= launched_.front().entries;
    launched_.pop_front();
  }
  if (!broken_.is_ok() || gpu_ == nullptr) return;
  const Nanos now = monotonic_now();
  if (now < next_look_) return;
  next_look_ = now + kLookEvery;
  const cuda::ScopedContext context(*gpu_->device());
  broken_ = communicators_.failure();
}

bool NcclBackend::is_idle() const {
  return state_ == State::kIdle && done_.empty() && meetings_.is_idle() && launched_.empty();
}

bool NcclBackend::prepare_sleep() {
  // NCCL does not say when it is done with what it does in the background, so it is asked again and again,
  // but not instead of the threads that do it. Nor does CUDA say when a queue has room again.
  const bool must_ask = is_asking_nccl() || state_ == State::kWaiting;
  if (must_ask) sched_yield();
  return !must_ask && done_.empty() && meetings_.prepare_sleep();
}

Status NcclBackend::device_failure() const { return broken_.is_ok() ? meetings_.device_failure() : broken_; }

std::vector<int32_t> NcclBackend::pause(CallId call) {
  const bool is_meeting = state_ == State::kMeeting && call_.id == call;
  return is_meeting ? meetings_.pause() : std::vector<int32_t>();  // otherwise all members have started it
}

void NcclBackend::resume(CallId call) {
  if (state_ == State::kMeeting && call_.id == call) meetings_.resume();
}

void NcclBackend::take_back(CallId call, std::span<const int32_t> arrivals) {
  RUEDA_CHECK(state_ == State::kMeeting && call_.id == call, "a call that all members have started runs");
  state_ = State::kLeaving;
  meetings_.take_back(arrivals);
}

void NcclBackend::abort(const Status& why) {
  RUEDA_CHECK(!why.is_ok(), "an abort needs a reason");
  broken_ = why;
  const bool is_enqueueing =
      state_ == State::kLaunching || state_ == State::kBetween || state_ == State::kProbing;
  state_ = State::kIdle;
  done_.clear();
  meetings_.abort(why);
  if (gpu_ == nullptr) return;
  const Deadline deadline = Deadline::after(kAbortTime);
  const cuda::ScopedContext context(*gpu_->device());
  for (const Launched& one : launched_) one.event->condemn(why);
  const size_t left = communicators_.abort(gpu_->device(), deadline);
  // The stream may still work for the call that was on its way. Until now NCCL may have enqueued something.
  if (is_enqueueing) (void)keep_enqueued();
  const bool has_ended = have_happened(launched_, deadline);
  if (left > 0 || !has_ended)
    RUEDA_LOG(kError, "NCCL has not ended what was launched within " + std::to_string(kAbortTime / kSecond) +
                          " s after the abort of its communicators; tensors of the GPU may still change.");
  for (const Launched& one : launched_) one.event->fail(why);
  launched_.clear();
  at_work_->is_launching = false;
  queued_ = 0;
}

}  // namespace rueda::backend
