#include "rueda/backend/nccl/nccl.h"

#include <sched.h>

#include <algorithm>

#include "rueda/backend/cuda_tensor.h"
#include "rueda/backend/nccl/identity.h"
#include "rueda/base/check.h"
#include "rueda/base/log.h"

namespace rueda::backend {
namespace {

using nccl::Stage;

constexpr Nanos kWatchEvery = 100 * kMicrosecond;  // what was launched, whether it has ended
constexpr Nanos kLookEvery = 10 * kMillisecond;    // at the communicators, for members that were lost
constexpr Nanos kAbortTime = 4 * kSecond;          // how long an abort is waited for
constexpr Nanos kFinishTime = 5 * kSecond;         // the same for an orderly end

}  // namespace

NcclBackend::NcclBackend(NcclOptions options)
    : options_(std::move(options)),
      host_sync_(std::move(options_.host)),
      sets_(std::move(options_.topology)),
      communicators_(options_.library) {}

NcclBackend::~NcclBackend() {
  if (launch_ == nullptr) return;
  const cuda::ScopedContext context(*launch_->gpu().device());
  const Deadline deadline = Deadline::after(kFinishTime);
  (void)launched_.wait(deadline);
  communicators_.finish(deadline);
  launched_.forget();
}

// ---- the stages of a call ----

void NcclBackend::begin(const Call& call) {
  RUEDA_CHECK(has_room(call.order), "one call at a time is on its way to the stream");
  call_ = call;
  culprit_.reset();
  communicator_ = nullptr;
  levels_ = nullptr;
}

void NcclBackend::start(const Call& call) {
  begin(call);
  if (!broken_.is_ok()) return end(broken_);
  std::optional<cuda::ScopedContext> context;
  if (launch_ != nullptr) context.emplace(*launch_->gpu().device());
  const Status fault = check_tensors(*options_.devices, call_.segments, culprit_);
  if (!fault.is_ok()) return end(fault);
  Status status = enter(nccl::first_stage(call.may_be_cancelled));
  if (status.is_ok() && nccl::is_immediate(stage_)) status = go_on();
  if (!status.is_ok()) end(status);
}

bool NcclBackend::progress(std::vector<Done>& done) {
  bool moved = host_sync_.progress(done);
  watch_launched();
  while (stage_ != Stage::kIdle) {
    const Result<bool> ended = has_ended();
    if (ended.is_ok() && !ended.value()) break;
    const Status status = ended.is_ok() ? go_on() : ended.status();
    if (!status.is_ok()) end(status);
    moved = true;
  }
  for (Done& each : std::exchange(done_, {})) {
    done.push_back(std::move(each));
    moved = true;
  }
  return moved;
}

Result<bool> NcclBackend::has_ended() {
  if (nccl::is_syncing(stage_)) {
    const std::optional<Status> outcome = host_sync_.take_outcome();
    if (outcome && !outcome->is_ok()) return *outcome;
    return outcome.has_value();
  }
  if (stage_ == Stage::kWaiting) return launched_.has_room(launch_->part_entries());
  Result<bool> settled = communicator_->is_settled();
  if (!settled.is_ok()) return settled;
  if (!settled.value() && stage_ == Stage::kConnecting) {
    const Status late = connection_->check(*communicator_, connected().me == 0);
    if (!late.is_ok()) return late;
  }
  if (!settled.value() || stage_ != Stage::kProbing) return settled;
  const cuda::ScopedContext context(*launch_->gpu().device());
  if (!context.status().is_ok()) return context.status();
  return probe_->has_ended(launch_->gpu());
}

// The stage has ended well.
Status NcclBackend::go_on() {
  std::optional<cuda::ScopedContext> context;
  if (launch_ != nullptr && !context.emplace(*launch_->gpu().device()).status().is_ok())
    return context->status();
  do {
    if (const Status status = leave(); !status.is_ok()) return status;
    if (const Status status = enter(nccl::stage_after(stage_, facts())); !status.is_ok()) return status;
  } while (nccl::is_immediate(stage_));
  return Status::ok();
}

nccl::Facts NcclBackend::facts() const {
  const bool is_prepared = communicator_ != nullptr && launch_ != nullptr;
  return {.is_refused = set_ != nullptr && !set_->refusal.empty(),
          .is_connected = communicator_ != nullptr,
          .has_probe = probe_.has_value(),
          .lacks_memory = is_prepared && launch_->adasum_bytes() > set_->adasum_bytes,
          .has_room = is_prepared && launched_.has_room(launch_->part_entries()),
          .is_hierarchical = levels_ != nullptr,
          .has_share = share_.output != nullptr,
          .has_exchange = is_prepared && nccl::is_enqueueing(stage_) && launch_->has_exchange(),
          .has_part = is_prepared && launch_->has_part()};
}

// What the end of the stage leaves behind.
Status NcclBackend::leave() {
  switch (stage_) {
    case Stage::kSettingUp:
      sets_.decide(*set_, *call_.group, host_sync_.member_infos());
      if (!set_->refusal.empty() && launch_ != nullptr && communicators_.is_empty())
        launch_->gpu().packing().give_up_unused();
      break;
    case Stage::kConnecting: {
      // A hierarchical job's buckets are those of its network, and a rank whose GPU is full cannot spare the
      // memory. All members decide alike.
      const bool is_world = call_.group->id == 0 && call_.group->size() > 1;
      if (is_world && !sets_.are_hierarchical() && communicator_->pack_bytes() >= nccl::Probe::kLarge)
        probe_.emplace();
      break;
    }
    case Stage::kProbing:
      if (!probe_->has_next()) return end_probe();
      break;
    case Stage::kAgreeing:
      sets_.decide_adasum(*set_, *call_.group, host_sync_.member_infos(), launch_->adasum_bytes());
      break;
    case Stage::kReducing: {
      if (levels_ == nullptr) return launch_->combine();
      Result<Segment> share = launch_->share();
      if (!share.is_ok()) return share.status();
      share_ = share.value();
      break;
    }
    case Stage::kExchanging:
      return launch_->combine();
    case Stage::kBetween:
      // The shares have been added, or are about to be written when an event happens.
      if (host_sync_.event() != nullptr)
        return host_sync_.event()->make_stream_wait(launch_->gpu().stream().handle());
      break;
    default:
      break;
  }
  return Status::ok();
}

Status NcclBackend::enter(Stage stage) {
  stage_ = stage;
  switch (stage) {
    case Stage::kSyncing:
      host_sync_.begin_for(call_);
      break;
    case Stage::kStarting:
      look_up();
      break;
    case Stage::kSettingUp:
      set_up();
      break;
    case Stage::kConnecting:
      return connect();
    case Stage::kProbing:
      return begin_probe_call();
    case Stage::kPreparing:
      launch_->begin(call_, *communicator_, levels_);
      break;
    case Stage::kAgreeing: {
      nccl::MemberInfo mine;
      mine.pack_bytes = static_cast<int64_t>(launch_->reserve_for_adasum());
      host_sync_.begin_for(*call_.group, mine);
      break;
    }
    case Stage::kWaiting: {  // what is enqueued gives room when it has ended
      if (!launched_.has_unkept()) break;
      const auto event = launch_->mark();
      if (!event.is_ok()) return event.status();
      launched_.keep(event.value());
      break;
    }
    case Stage::kReducing:
      launched_.begin(launch_->part_entries());
      return launch_->reduce();
    case Stage::kExchanging:
      return launch_->exchange();
    case Stage::kBetween: {
      schedule::Spec spec = call_.spec;  // scaled before and after, not here
      spec.count = share_.count;
      spec.scale = {};
      host_sync_.begin_for(levels_->between, spec, share_);
      break;
    }
    case Stage::kGathering:
      return launch_->gather();
    case Stage::kStoring:
      return launch_->store();
    case Stage::kHandedOver:
      hand_over();
      break;
    case Stage::kDone:
      return finish();
    case Stage::kIdle:
    case Stage::kLeaving:
      break;
  }
  return Status::ok();
}

void NcclBackend::end(const Status& status, std::shared_ptr<CudaEvent> event) {
  if (!status.is_ok() && broken_.is_ok()) broken_ = status;  // the other members go on without this rank
  stage_ = Stage::kIdle;
  launched_.end();
  probe_.reset();
  const std::string_view how = levels_ == nullptr ? "nccl" : "nccl_hierarchical";
  done_.push_back({.id = call_.id,
                   .status = status,
                   .how = nccl::is_adasum(call_.spec) ? "nccl_adasum" : how,
                   .event = std::move(event),
                   .segment = culprit_});
}

// ---- what the stages do ----

// All members have come, or need not.
void NcclBackend::look_up() {
  set_ = &sets_.find(*call_.group);
  if (!set_->refusal.empty()) return;
  const bool may_have_levels = call_.spec.what == Collective::kAllreduce && !nccl::is_adasum(call_.spec);
  if (may_have_levels && sets_.are_hierarchical()) levels_ = sets_.levels_of(*set_, *call_.group);
  if (levels_ != nullptr && !host_sync_.can_run(levels_->between, call_.spec)) levels_ = nullptr;
  communicator_ = communicators_.find(*call_.group, connected());
}

void NcclBackend::set_up() {
  nccl::MemberInfo mine;
  if (const Status status = prepare_gpu(mine); !status.is_ok()) mine.set_why_not(status.why);
  host_sync_.begin_for(*call_.group, mine);
}

// The first call decides which GPU is this rank's: that of its tensors.
Status NcclBackend::prepare_gpu(nccl::MemberInfo& mine) {
  if (launch_ == nullptr) {
    auto opened = Gpu::open(*options_.devices, call_.segments, options_.local_rank);
    if (!opened.is_ok()) return opened.status();
    launch_ = std::make_unique<nccl::Launch>(options_.library, options_.devices, std::move(opened).value());
  }
  Gpu& gpu = launch_->gpu();
  mine.set_gpu(nccl::identity_of(*gpu.device(), options_.library->version()));
  const cuda::ScopedContext context(*gpu.device());
  if (!context.status().is_ok()) return context.status();
  mine.pack_bytes = static_cast<int64_t>(gpu.packing().prepare(options_.pack_bytes));
  if (connected().me != 0) return Status::ok();
  return options_.library->check(options_.library->call().GetUniqueId(&mine.id), "ncclGetUniqueId");
}

Status NcclBackend::connect() {
  const Group& group = *call_.group;
  const std::span<const nccl::MemberInfo> members = host_sync_.member_infos();
  const size_t first = static_cast<size_t>(std::ranges::find(group.members, connected().members.front()) -
                                           group.members.begin());
  const auto begun =
      communicators_.begin(members[first].id, group, connected(), nccl::pack_bytes_of(members));
  if (!begun.is_ok()) return begun.status();
  communicator_ = begun.value();
  connection_.emplace(options_.patience);
  return Status::ok();
}

Status NcclBackend::begin_probe_call() {
  launched_.begin(0);
  const nccl::Step step = probe_->begin(launch_->gpu().packing().memory());
  return launch_->launch(*communicator_, std::span(&step, 1));
}

Status NcclBackend::end_probe() {
  const size_t most = std::min(communicator_->pack_bytes(), options_.pack_bytes);
  bucket_bytes_ = probe_->bucket_bytes(static_cast<int64_t>(most), call_.group->me == 0);
  probe_.reset();
  const auto event = launch_->gpu().launched(*options_.devices, {});
  if (!event.is_ok()) return event.status();
  launched_.keep(event.value());
  return Status::ok();
}

void NcclBackend::hand_over() {
  stage_ = Stage::kIdle;
  if (host_sync_.hand_over(call_)) return;
  const std::string why = set_->refusal.empty() ? "Adasum has no memory on a GPU." : set_->refusal;
  const Status status(Code::kUnsupported, why + " Copy the tensor to host memory first.");
  done_.push_back({.id = call_.id, .status = status, .how = "nccl"});  // the same on every member
}

// Everything is on the stream, or the call was cancelled.
Status NcclBackend::finish() {
  if (communicator_ == nullptr) return end(Status::ok()), Status::ok();
  const auto event = launch_->end();
  if (!event.is_ok()) return event.status();
  launched_.keep(event.value());
  end(Status::ok(), event.value());
  return Status::ok();
}

// ---- waiting, cancellation, failures ----

// Each question takes CUDA's lock, for which the threads of the program wait that launch meanwhile.
void NcclBackend::watch_launched() {
  if (launch_ == nullptr) return;
  const Nanos now = monotonic_now();
  const bool waits_for_room = stage_ == Stage::kWaiting;
  if (!waits_for_room && now < next_watch_) return;
  next_watch_ = now + kWatchEvery;
  const cuda::ScopedContext context(*launch_->gpu().device());
  const Status ended = launched_.watch();
  if (broken_.is_ok()) broken_ = ended;
  if (!broken_.is_ok() || now < next_look_) return;
  next_look_ = now + kLookEvery;
  broken_ = communicators_.failure();
}

bool NcclBackend::is_idle() const {
  return stage_ == Stage::kIdle && done_.empty() && host_sync_.is_idle() && launched_.is_empty();
}

bool NcclBackend::prepare_sleep() {
  // NCCL does not say when it is done with what it does in the background, so it is asked again and again,
  // but not instead of the threads that do it. Nor does CUDA say when a queue has room again.
  const bool must_ask = nccl::asks_nccl(stage_) || stage_ == Stage::kWaiting;
  if (must_ask) sched_yield();
  return !must_ask && done_.empty() && host_sync_.prepare_sleep();
}

Status NcclBackend::device_failure() const { return broken_.is_ok() ? host_sync_.device_failure() : broken_; }

// In a later stage all members have started the call.
std::vector<int32_t> NcclBackend::pause(CallId call) {
  return is_met(call) ? host_sync_.pause() : std::vector<int32_t>();
}

void NcclBackend::resume(CallId call) {
  if (is_met(call)) host_sync_.resume();
}

void NcclBackend::cancel(CallId call, std::span<const int32_t> arrivals) {
  RUEDA_CHECK(is_met(call), "a call that all members have started runs");
  stage_ = Stage::kLeaving;
  host_sync_.cancel(arrivals);
}

void NcclBackend::discard(const Call& call, std::span<const int32_t> arrivals) {
  begin(call);
  if (!broken_.is_ok()) return end(broken_);
  stage_ = Stage::kLeaving;
  host_sync_.discard(call_, arrivals);
}

void NcclBackend::abort(const Status& why) {
  RUEDA_CHECK(!why.is_ok(), "an abort needs a reason");
  broken_ = why;
  const bool is_enqueueing = nccl::is_enqueueing(stage_) || stage_ == Stage::kBetween;
  stage_ = Stage::kIdle;
  done_.clear();
  host_sync_.abort(why);
  if (launch_ == nullptr) return;
  const Deadline deadline = Deadline::after(kAbortTime);
  const cuda::ScopedContext context(*launch_->gpu().device());
  launched_.condemn(why);
  const size_t left = communicators_.abort(launch_->gpu().device(), deadline);
  // The stream may still work for the call that was on its way. Until now NCCL may have enqueued something.
  if (is_enqueueing)
    if (const auto event = launch_->mark(); event.is_ok()) launched_.keep(event.value());
  const bool has_ended = launched_.wait(deadline);
  if (left > 0 || !has_ended)
    RUEDA_LOG(kError, "NCCL has not ended what was launched within " + std::to_string(kAbortTime / kSecond) +
                          " s after the abort of its communicators; tensors of the GPU may still change.");
  launched_.fail(why);
  launched_.forget();
}

}  // namespace rueda::backend
