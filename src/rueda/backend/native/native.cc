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
void run_alone(const schedule::Spec& spec, const std::byte* input, std::byte* output) {
  const auto count = static_cast<size_t>(output_count(spec, 0, 1));
  if (is_reduction(spec.what)) return kernels::scale(spec.dtype, input, output, count, spec.scale);
  if (input != output && count != 0) std::memcpy(output, input, count * size_of(spec.dtype));
}

// Two hear of one another before they write: the verifier proves it, and make_plan() insists on it. Several
// tensors are reduced in a buffer of their own.
bool spares_inputs(const Call& call) { return call.segments.size() > 1 || call.group->size() == 2; }

size_t bytes_of(const Call& call) { return static_cast<size_t>(call.spec.count) * size_of(call.spec.dtype); }

}  // namespace

NativeBackend::NativeBackend(Mesh mesh, NativeOptions options)
    : mesh_(std::move(mesh)), options_(std::move(options)) {
  if (!options_.planner) options_.planner = plan_with_registry(options_.algorithm, options_.is_bitwise);
}

NativeBackend::~NativeBackend() = default;

// Else nothing may be written before all members have started the call. The same on every member, whatever is
// in place there.
bool NativeBackend::needs_gate(const Call& call) const {
  if (!call.may_be_taken_back || call.spec.what != Collective::kAllreduce) return false;
  const size_t bytes = bytes_of(call);
  if (bytes == 0) return true;  // without elements there are no messages that would keep members together
  return !spares_inputs(call) && bytes > options_.copied_bytes;
}

void NativeBackend::drain(const Call& call, std::span<const int32_t> arrivals) {
  RUEDA_CHECK(arrivals.size() == static_cast<size_t>(call.group->size()),
              "every member has sent a number of messages");
  begin(call, arrivals);
}

bool NativeBackend::progress(std::vector<Done>& done) {
  bool moved = !finished_.empty();
  if (is_running_) {
    moved = execution_.run_ready(kRoundBudget) || moved;
    if (execution_.is_over()) {
      if (!execution_.status().is_ok()) broken_ = execution_.status();
      if (is_at_gate_ && execution_.status().is_ok() && !is_taken_back_)
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

void NativeBackend::begin(const Call& call, Arrivals drained) {
  RUEDA_CHECK(call.group != nullptr && call.group->is_member(), "a call needs a group that I belong to");
  RUEDA_CHECK(is_idle(), "calls run one after the other");
  current_ = call;
  is_taken_back_ = drained.has_value();
  is_at_gate_ = needs_gate(call);
  how_ = "";
  if (!broken_.is_ok()) return end(broken_);
  if (const Status loaded = load(call, is_taken_back_); !loaded.is_ok()) return end(loaded);
  if (call.group->size() == 1) {
    how_ = "copy";
    if (!is_taken_back_) run_alone(call.spec, packing_.input(), packing_.output());
    return end(Status::ok());
  }
  const schedule::Spec gate = {.what = Collective::kBarrier, .counts = {}, .scale = {}, .segments = {}};
  if (const Status status = prepare(is_at_gate_ ? gate : call.spec, drained); !status.is_ok())
    return end(status);
  is_running_ = true;
}

// What may be taken back and is not held up by a gate is not reduced in place.
Status NativeBackend::load(const Call& call, bool is_drained) {
  if (is_drained) {
    packing_.clear();
    return Status::ok();
  }
  const bool is_in_place =
      call.segments.size() == 1 && call.segments.front().input == call.segments.front().output;
  const bool is_copied = call.may_be_taken_back && call.spec.what == Collective::kAllreduce && is_in_place &&
                         !is_at_gate_ && !spares_inputs(call);
  if (const Status packed = packing_.pack(call, is_copied); !packed.is_ok()) {
    broken_ = packed;  // the other members run the call: my lanes carry what nobody will take
    return packed;
  }
  call.note(Activity::kTransfer);
  return Status::ok();
}

// All members have started the call: it can no longer be taken back.
void NativeBackend::pass_gate() {
  is_at_gate_ = false;
  if (const Status status = prepare(current_.spec, std::nullopt); !status.is_ok()) end(status);
}

std::vector<int32_t> NativeBackend::pause() {
  if (!is_running_ || is_taken_back_) return {};
  execution_.pause();
  return execution_.sent(static_cast<size_t>(current_.group->size()));
}

void NativeBackend::resume() {
  if (is_running_ && !is_taken_back_) execution_.resume();
}

void NativeBackend::take_back(std::span<const int32_t> arrivals) {
  if (!is_running_) return;  // it failed
  RUEDA_CHECK(!is_taken_back_, "a call is taken back once");
  is_taken_back_ = true;
  execution_.cancel(arrivals);
}

Status NativeBackend::prepare(const schedule::Spec& spec, Arrivals drained) {
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
  how_ = plan_->schedule.name;
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
  const Buffers buffers{
      .spec = &spec_, .input = packing_.input(), .output = packing_.output(), .scratch = scratch.value()};
  if (drained)
    execution_.drain(*plan_, buffers, endpoints_, ticket_base(call.id), *drained);
  else
    execution_.begin(*plan_, buffers, endpoints_, ticket_base(call.id));
  return Status::ok();
}

void NativeBackend::end(const Status& status) {
  is_running_ = false;
  if (status.is_ok() && !is_taken_back_) packing_.unpack(current_);
  finished_.push_back({.id = current_.id, .status = status, .how = how_});
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
}

}  // namespace rueda::backend
