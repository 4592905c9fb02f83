#include "rueda/backend/native/call_runner.h"

#include <cstring>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/kernels/kernels.h"
#include "rueda/schedule/algorithm.h"
#include "rueda/schedule/start_barrier.h"

namespace rueda::backend {
namespace {

// A group of one has nobody to talk to.
void run_alone(const schedule::Spec& spec, const std::byte* input, std::byte* output) {
  const auto count = static_cast<size_t>(output_count(spec, 0, 1));
  if (is_reduction(spec.what)) return kernels::scale(spec.dtype, input, output, count, spec.scale);
  if (input != output && count != 0) std::memcpy(output, input, count * size_of(spec.dtype));
}

// Whether the output of its only tensor shares memory with the input.
bool is_in_place(const Call& call) {
  if (call.segments.size() != 1) return false;
  const Segment& tensor = call.segments.front();
  const auto bytes = [&](int64_t elements) {
    return static_cast<size_t>(elements) * size_of(call.spec.dtype);
  };
  const size_t given = bytes(elements_given(call.spec.what, tensor, call.group->me, call.group->size()));
  const size_t taken = bytes(elements_taken(call.spec.what, tensor, call.group->me, call.group->size()));
  const auto input = reinterpret_cast<uintptr_t>(tensor.input);
  const auto output = reinterpret_cast<uintptr_t>(tensor.output);
  return input < output + taken && output < input + given;
}

}  // namespace

bool CallRunner::needs_start_barrier() const {
  return current_.may_be_cancelled &&
         schedule::needs_start_barrier(current_.spec, current_.segments.size(), current_.group->size(),
                                       context_.options.copied_bytes);
}

// A wire type is for the way between hosts.
void CallRunner::choose_wire() {
  if (is_encoded() && context_.mesh.topology(*current_.group).is_single_host())
    current_.spec.wire = Wire::kExact;
  if (is_encoded()) encoded_.begin(current_);
}

void CallRunner::begin(const Call& call, transport::Ticket first_ticket, Arrivals discarded) {
  RUEDA_CHECK(call.group != nullptr && call.group->is_member(), "a call needs a group that I belong to");
  RUEDA_CHECK(is_idle(), "the calls of one channel run one after the other");
  current_ = call;
  choose_wire();
  first_ticket_ = first_ticket;
  is_cancelled_ = discarded.has_value();
  if (discarded) arrivals_.assign(discarded->begin(), discarded->end());
  is_held_ = false;
  is_at_start_barrier_ = needs_start_barrier();
  how_ = "";
  if (!context_.broken.is_ok()) return end(context_.broken);
  if (const Status loaded = load(is_cancelled_); !loaded.is_ok()) return end(loaded);
  if (call.group->size() == 1) {
    how_ = "copy";
    if (!is_cancelled_) run_alone(current_.spec, packing_.input(), packing_.output());
    return end(Status::ok());
  }
  const schedule::Spec barrier = {
      .what = Collective::kBarrier, .counts = {}, .scale = {}, .segment_counts = {}};
  is_running_ = true;
  if (const Status status = prepare(is_at_start_barrier_ ? barrier : current_.spec); !status.is_ok())
    end(status);
}

// A call that may be cancelled is not reduced in place, unless a start barrier protects its inputs. The
// output of a reducescatter is in place rarely, and then a part of the input.
bool CallRunner::needs_copy() const {
  const Call& call = current_;
  const bool writes_input =
      is_in_place(call) &&
      (call.spec.what == Collective::kReducescatter ||
       (is_reduction(call.spec.what) && !schedule::spares_inputs(call.segments.size(), call.group->size())));
  return call.may_be_cancelled && writes_input && !is_at_start_barrier_;
}

Status CallRunner::load(bool is_discarded) {
  if (is_discarded) {
    packing_.clear();
    return Status::ok();
  }
  if (is_encoded()) return Status::ok();  // prepare() knows what it needs
  const Status packed = packing_.pack(current_, needs_copy());
  if (!packed.is_ok()) {
    context_.broken = packed;  // the other members run the call, and nobody here will receive what they send
    return packed;
  }
  current_.note(Activity::kTransfer);
  return Status::ok();
}

Status CallRunner::prepare(const schedule::Spec& spec) {
  const Group& group = *current_.group;
  const NativeOptions& options = context_.options;
  const auto make = [&]() -> Result<schedule::Schedule> {
    schedule::Topology topology = context_.mesh.topology(group);
    RUEDA_CHECK(topology.size() == group.size(), "the topology describes another group");
    topology.chunk_bytes = options.chunk_bytes;
    return options.maker(spec, schedule::tuned_for(spec, std::move(topology)), group.me);
  };
  auto found = context_.schedules.find_or_make(group, spec, std::ref(make));  // no copy on the heap
  if (!found.is_ok()) return found.status();  // every member gets the same failure
  prepared_ = std::move(found).value();
  how_ = prepared_->schedule.name;
  const size_t element = size_of(type_of(spec, schedule::Buffer::kScratch));
  const auto scratch = scratch_.reserve(static_cast<size_t>(prepared_->schedule.scratch_count) * element);
  if (!scratch.is_ok()) {
    // The other members run the call, and nobody here will receive what they send.
    context_.broken = scratch.status();
    return context_.broken;
  }
  std::byte* wire = nullptr;
  if (prepared_->schedule.wire_count > 0) {
    const int64_t blocks = prepared_->schedule.wire_count / kWireBlock;
    const auto room = wire_.reserve(static_cast<size_t>(blocks * wire_block_bytes(spec.wire)));
    if (!room.is_ok()) return context_.broken = room.status();
    wire = room.value();
  }
  if (is_encoded() && !is_cancelled_) {
    if (const Status status = encoded_.prepare(*prepared_); !status.is_ok()) return context_.broken = status;
    current_.note(Activity::kTransfer);
  }
  spec_ = spec;
  buffers_ = {.spec = &spec_,
              .input = is_encoded() ? encoded_.input() : packing_.input(),
              .output = is_encoded() ? nullptr : packing_.output(),
              .scratch = scratch.value(),
              .wire = wire,
              .encoded = is_encoded() ? &encoded_ : nullptr};
  channels_.begin(group, *prepared_);
  return connect();
}

// Starts what is prepared if its channels are up; otherwise it goes on waiting for them.
Status CallRunner::connect() {
  const Arrivals arrivals = is_cancelled_ ? Arrivals(arrivals_) : std::nullopt;
  ActivitySink* const sink = is_at_start_barrier_ ? nullptr : current_.activities;
  execution_.observe(sink != nullptr && sink->wants_messages() ? sink : nullptr);
  is_connecting_ = !channels_.are_up(arrivals);
  if (is_connecting_) {
    const Status& failure = channels_.failure();
    if (!failure.is_ok()) context_.broken = failure;  // the other members run the call
    return failure;
  }
  if (arrivals)
    execution_.discard(*prepared_, buffers_, channels_.endpoints(), first_ticket_, *arrivals);
  else
    execution_.begin(*prepared_, buffers_, channels_.endpoints(), first_ticket_);
  return Status::ok();
}

bool CallRunner::progress(size_t budget, std::vector<Done>& done) {
  bool moved = false;
  if (is_connecting_ && !is_held_) {
    if (const Status status = connect(); !status.is_ok()) end(status);
    moved = !is_connecting_;
  }
  if (is_running_ && !is_connecting_) {
    moved = execution_.run_ready(budget) || moved;
    if (execution_.is_over()) {
      if (!execution_.status().is_ok()) context_.broken = execution_.status();
      if (is_at_start_barrier_ && execution_.status().is_ok() && !is_cancelled_)
        pass_start_barrier();
      else
        end(execution_.status());
      moved = true;
    }
  }
  if (!finished_) return moved;
  done.push_back(std::move(*finished_));
  finished_.reset();
  return true;
}

// All members have started the call, so it can no longer be cancelled.
void CallRunner::pass_start_barrier() {
  is_at_start_barrier_ = false;
  if (const Status status = prepare(current_.spec); !status.is_ok()) end(status);
}

std::vector<int32_t> CallRunner::pause() {
  if (!is_running_ || is_cancelled_) return {};
  const auto members = static_cast<size_t>(current_.group->size());
  is_held_ = true;
  if (is_connecting_) return std::vector<int32_t>(members, 0);
  execution_.pause();
  return execution_.sent(members);
}

void CallRunner::resume() {
  is_held_ = false;
  if (is_running_ && !is_cancelled_ && !is_connecting_) execution_.resume();
}

void CallRunner::cancel(std::span<const int32_t> arrivals) {
  if (!is_running_) return;  // the call has failed already
  RUEDA_CHECK(!is_cancelled_, "a call is cancelled once");
  is_cancelled_ = true;
  is_held_ = false;
  if (is_encoded()) encoded_.roll_back();
  if (!is_connecting_) return execution_.cancel(arrivals);
  arrivals_.assign(arrivals.begin(), arrivals.end());  // as if it had been discarded from the start
  if (const Status status = connect(); !status.is_ok()) end(status);
}

void CallRunner::on_completion(uint32_t step, const Status& status) {
  RUEDA_CHECK(step < execution_.step_count(), "a ticket that was never given out");
  execution_.on_completion(static_cast<int32_t>(step), status);
}

void CallRunner::end(const Status& status) {
  is_running_ = is_connecting_ = false;
  const bool is_done = status.is_ok() && !is_cancelled_;
  if (is_encoded() && is_done)
    encoded_.commit();
  else if (is_encoded())
    encoded_.roll_back();
  else if (is_done)
    packing_.unpack(current_);
  finished_ = Done{.id = current_.id, .status = status, .how = how_};
}

void CallRunner::abort(const Status& why) {
  if (is_running_) end(why);
}

}  // namespace rueda::backend
