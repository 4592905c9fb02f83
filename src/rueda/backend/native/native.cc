#include "rueda/backend/native/native.h"

#include <cstring>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend {
namespace {

using transport::Ticket;

// A ticket: kTicketByte, 24 bits of the call's number, 32 bits of the step's index.
constexpr int kByteShift = 56;
constexpr int kCallShift = 32;
constexpr Ticket kCallMask = 0xFFFFFF;

// Between two looks at the wires, run at most about this many bytes of local steps: some 100 us, so that what
// arrives meanwhile is passed on in time.
constexpr size_t kRoundBudget = 1 << 20;

Ticket ticket_base(CallId id) {
  return (Ticket{NativeBackend::kTicketByte} << kByteShift) | ((id & kCallMask) << kCallShift);
}

// A group of one has nobody to talk to.
void run_alone(const Call& call) {
  const schedule::Spec& spec = call.spec;
  const auto count = static_cast<size_t>(output_count(spec, 0, 1));
  if (is_reduction(spec.what)) return kernels::scale(spec.dtype, call.input, call.output, count, spec.scale);
  if (call.input != call.output && count != 0)
    std::memcpy(call.output, call.input, count * size_of(spec.dtype));
}

}  // namespace

NativeBackend::NativeBackend(Mesh mesh, NativeOptions options)
    : mesh_(std::move(mesh)), options_(std::move(options)) {
  if (!options_.planner) options_.planner = plan_with_registry(options_.algorithm, options_.is_bitwise);
}

NativeBackend::~NativeBackend() = default;

void NativeBackend::start(const Call& call) {
  RUEDA_CHECK(call.group != nullptr && call.group->is_member(), "a call needs a group that I belong to");
  RUEDA_CHECK(queue_.size() < kMaxQueuedCalls, "the queue of calls is bounded");
  queue_.push_back({.call = call, .drained = std::nullopt});
}

void NativeBackend::drain(const Call& call, std::vector<int32_t> arrivals) {
  RUEDA_CHECK(arrivals.size() == static_cast<size_t>(call.group->size()),
              "every member has sent a number of messages");
  queue_.push_back({.call = call, .drained = std::move(arrivals)});
}

bool NativeBackend::progress(std::vector<Done>& done) {
  bool moved = false;
  if (!is_running_ && !queue_.empty()) {
    std::optional<std::vector<int32_t>> drained = std::move(queue_.front().drained);
    current_ = std::move(queue_.front().call);
    queue_.pop_front();
    begin(drained);
    moved = true;
  }
  if (is_running_) {
    moved = execution_.run_ready(kRoundBudget) || moved;
    if (execution_.is_over()) {
      if (!execution_.status().is_ok()) broken_ = execution_.status();
      if (is_at_gate_ && execution_.status().is_ok() && !is_cancelled_)
        pass_gate();
      else
        end(execution_.status());
      moved = true;
    }
  }
  for (Done& each : finished_) done.push_back(std::move(each));
  finished_.clear();
  return moved;
}

void NativeBackend::begin(const std::optional<std::vector<int32_t>>& drained) {
  is_cancelled_ = drained.has_value();
  is_at_gate_ = current_.is_gated;
  if (!broken_.is_ok()) return end(broken_);
  if (current_.group->size() == 1) {
    way_ = "copy";
    if (!is_cancelled_) run_alone(current_);
    return end(Status::ok());
  }
  const schedule::Spec gate = {.what = Collective::kBarrier, .counts = {}, .scale = {}, .segments = {}};
  if (const Status status = prepare(is_at_gate_ ? gate : current_.spec, drained); !status.is_ok())
    return end(status);
  is_running_ = true;
  trace(TraceKind::kBegin);
}

// All members have started the call: it can no longer be cancelled.
void NativeBackend::pass_gate() {
  is_at_gate_ = false;
  if (const Status status = prepare(current_.spec, std::nullopt); !status.is_ok()) end(status);
}

std::vector<int32_t> NativeBackend::pause() {
  if (!is_running_ || is_cancelled_) return {};
  execution_.pause();
  return execution_.sent(static_cast<size_t>(current_.group->size()));
}

void NativeBackend::resume() {
  if (is_running_ && !is_cancelled_) execution_.resume();
}

void NativeBackend::cancel(std::span<const int32_t> arrivals) {
  RUEDA_CHECK(is_running_ && !is_cancelled_ && queue_.empty(), "a call that may be cancelled runs alone");
  is_cancelled_ = true;
  execution_.cancel(arrivals);
}

Status NativeBackend::prepare(const schedule::Spec& spec,
                              const std::optional<std::vector<int32_t>>& drained) {
  const Call& call = current_;
  const Group& group = *call.group;
  auto found = plans_.find_or_make(group, spec, [&]() -> Result<Planned> {
    schedule::Topology topology = mesh_.topology(group);
    RUEDA_CHECK(topology.size() == group.size(), "the topology describes another group");
    topology.chunk_bytes = options_.chunk_bytes;
    return options_.planner(spec, topology, group.me);
  });
  if (!found.is_ok()) return found.status();  // every member comes to the same verdict
  plan_ = std::move(found).value();
  way_ = plan_->schedule.name;
  const size_t element = size_of(type_of(spec, schedule::Space::kScratch));
  const auto scratch = scratch_.reserve(static_cast<size_t>(plan_->schedule.scratch_count) * element);
  if (!scratch.is_ok()) {
    broken_ = scratch.status();  // the other members run the call: my lanes carry what nobody will take
    return broken_;
  }
  endpoints_.assign(group.size(), nullptr);
  for (const Plan::Queue& queue : plan_->queues) {
    transport::Endpoint* endpoint = mesh_.endpoint(group.members[queue.peer]);
    RUEDA_CHECK(endpoint != nullptr, "a lane that a schedule needs is not up");
    endpoints_[queue.peer] = endpoint;
  }
  spec_ = spec;
  const Buffers buffers{.spec = &spec_,
                        .input = static_cast<const std::byte*>(call.input),
                        .output = static_cast<std::byte*>(call.output),
                        .scratch = scratch.value()};
  if (drained)
    execution_.drain(*plan_, buffers, endpoints_, ticket_base(call.id), *drained);
  else
    execution_.begin(*plan_, buffers, endpoints_, ticket_base(call.id));
  return Status::ok();
}

void NativeBackend::end(const Status& status) {
  if (is_running_) trace(TraceKind::kEnd);
  is_running_ = false;
  finished_.push_back({.id = current_.id, .status = status});
}

void NativeBackend::on_completion(const transport::Completion& completion) {
  RUEDA_CHECK(completion.ticket >> kByteShift == kTicketByte, "a ticket of another owner");
  const bool is_current =
      is_running_ && (completion.ticket & ~uint64_t{UINT32_MAX}) == ticket_base(current_.id);
  if (!is_current) {
    // Only abort() leaves tickets behind.
    RUEDA_CHECK(!broken_.is_ok(), "a completion for a call that is not running");
    return;
  }
  const auto index = static_cast<uint32_t>(completion.ticket);
  RUEDA_CHECK(index < execution_.step_count(), "a ticket that was never given out");
  execution_.on_completion(static_cast<int32_t>(index), completion.status);
}

void NativeBackend::abort(const Status& why) {
  RUEDA_CHECK(!why.is_ok(), "an abort needs a reason");
  broken_ = why;
  if (is_running_) end(why);
  for (const Queued& each : queue_) finished_.push_back({.id = each.call.id, .status = why});
  queue_.clear();
}

void NativeBackend::trace(TraceKind kind) {
  if (options_.trace == nullptr || !options_.trace->is_on()) return;
  if (kind == TraceKind::kBegin)
    trace_name_ = std::string(name_of(current_.spec.what)) + " " + std::string(way_);
  const int64_t bytes = current_.spec.count * static_cast<int64_t>(size_of(current_.spec.dtype));
  options_.trace->emit({.kind = kind,
                        .when = monotonic_now(),
                        .track = "native backend",
                        .name = trace_name_,
                        .value = bytes});
}

}  // namespace rueda::backend
