#include "rueda/backend/native/prepared_schedule.h"

#include <map>
#include <numeric>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/schedule/first_write.h"

namespace rueda::backend {
namespace {

using schedule::Buffer;
using schedule::Slice;
using schedule::Spec;
using schedule::Step;
using schedule::StepKind;

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

bool is_of_input(const Slice& slice) { return slice.buffer == Buffer::kInput && slice.count > 0; }

bool is_send(const Step& step) { return step.kind == StepKind::kSend; }

// Whether the bytes of a receive cannot simply be put where they belong.
bool needs_consumer(const Step& step, const Spec& spec) {
  if (step.kind == StepKind::kRecvReduce) return true;
  if (step.wire == schedule::WireType::kEncoded) return false;
  return step.kind == StepKind::kRecv && type_of(spec, step.wire) != type_of(spec, step.to.buffer);
}

class Checker {
 public:
  Checker(const Spec& spec, Rank me, Rank n, const schedule::Schedule& schedule)
      : spec_(spec),
        me_(me),
        n_(n),
        limits_{input_count(spec, me, n), output_count(spec, me, n), schedule.scratch_count,
                schedule.wire_count} {}

  void check(const Step& step, int32_t index) const {
    check_slice(step.to);
    check_slice(step.from);
    check_slice(step.from2);
    for (const int32_t before : step.after)
      RUEDA_CHECK(before >= 0 && before < index, "a step waits for one that does not come before it");
    const bool has_peer = is_send(step) || is_receive(step);
    RUEDA_CHECK(!has_peer || (step.peer >= 0 && step.peer < n_ && step.peer != me_),
                "a message goes to a rank outside the group or to its sender");
    if (!is_send(step))
      RUEDA_CHECK(step.to.buffer != Buffer::kInput || step.to.count == 0, "a step writes the input");
    check_types(step);
  }

 private:
  void check_slice(const Slice& slice) const {
    const int64_t limit = limits_[static_cast<size_t>(slice.buffer)];
    RUEDA_CHECK(
        slice.begin >= 0 && slice.count >= 0 && (slice.count == 0 || slice.begin + slice.count <= limit),
        "a slice lies outside its buffer");
    RUEDA_CHECK(
        slice.buffer != Buffer::kWire || (slice.begin % kWireBlock == 0 && slice.count % kWireBlock == 0 &&
                                          (slice.count == 0 || spec_.wire != Wire::kExact)),
        "a slice of the wire buffer is not whole blocks");
  }
  void check_types(const Step& step) const {
    const DType accumulator = accumulator_of(spec_.dtype);
    const DType to = type_of(spec_, step.to.buffer);
    switch (step.kind) {
      case StepKind::kSend:
      case StepKind::kAdasum:
        return;
      case StepKind::kEncode:
        RUEDA_CHECK(step.to.buffer == Buffer::kWire && step.to.count == step.from.count,
                    "an encoded value must be put into the wire buffer");
        return;
      case StepKind::kRecv: {
        RUEDA_CHECK((step.wire == schedule::WireType::kEncoded) == (step.to.buffer == Buffer::kWire),
                    "encoded blocks belong into the wire buffer");
        const bool narrows = type_of(spec_, step.wire) != to && to != accumulator;
        RUEDA_CHECK(!narrows, "a receive would put accumulators where elements belong");
        return;
      }
      case StepKind::kCopy:
        RUEDA_CHECK(step.to.count == step.from.count, "a copy between slices of different size");
        RUEDA_CHECK(to == type_of(spec_, step.from.buffer) || to == accumulator,
                    "a copy would have to round");
        return;
      case StepKind::kRecvReduce:
        RUEDA_CHECK(to == accumulator, "a partial reduction must be held in the accumulator type");
        RUEDA_CHECK(step.to.count == step.from.count, "a reduction of slices of different size");
        return;
      case StepKind::kReduce:
        RUEDA_CHECK(to == accumulator, "a partial reduction must be held in the accumulator type");
        RUEDA_CHECK(step.to.count == step.from.count && step.to.count == step.from2.count,
                    "a reduction of slices of different size");
        return;
      case StepKind::kFinish:
        RUEDA_CHECK(step.to.buffer == Buffer::kOutput && step.to.count == step.from.count,
                    "a finish must write the output, element by element");
        return;
    }
  }

  const Spec& spec_;
  Rank me_, n_;
  int64_t limits_[schedule::kBufferCount];
};

void link_dependents(PreparedSchedule& prepared) {
  const size_t count = prepared.size();
  prepared.blockers.resize(count);
  prepared.dependents_begin.assign(count + 1, 0);
  for (const Step& step : prepared.schedule.steps)
    for (const int32_t before : step.after) ++prepared.dependents_begin[before + 1];
  std::partial_sum(prepared.dependents_begin.begin(), prepared.dependents_begin.end(),
                   prepared.dependents_begin.begin());
  prepared.dependents.resize(prepared.dependents_begin.back());
  std::vector<int32_t> next(prepared.dependents_begin.begin(), prepared.dependents_begin.end() - 1);
  for (size_t i = 0; i < count; ++i) {
    Step& step = prepared.schedule.steps[i];
    prepared.blockers[i] = static_cast<int32_t>(step.after.size());
    for (const int32_t before : step.after) prepared.dependents[next[before]++] = static_cast<int32_t>(i);
    std::vector<int32_t>().swap(step.after);
  }
}

void fill_queues(PreparedSchedule& prepared, const Spec& spec) {
  std::map<std::pair<Rank, bool>, int32_t> index;  // (peer, is it a send) -> queue
  prepared.queue_of.assign(prepared.size(), -1);
  prepared.consumer_of.assign(prepared.size(), -1);
  for (size_t i = 0; i < prepared.size(); ++i) {
    const Step& step = prepared.schedule.steps[i];
    if (!is_send(step) && !is_receive(step)) continue;
    const auto [at, is_new] =
        index.try_emplace({step.peer, is_send(step)}, static_cast<int32_t>(prepared.queues.size()));
    if (is_new) prepared.queues.push_back({.peer = step.peer, .sends = is_send(step), .steps = {}});
    prepared.queues[at->second].steps.push_back(static_cast<int32_t>(i));
    prepared.queue_of[i] = at->second;
    if (needs_consumer(step, spec)) prepared.consumer_of[i] = prepared.consumer_count++;
  }
}

}  // namespace

int64_t input_count(const Spec& spec, Rank me, Rank n) {
  switch (spec.what) {
    case Collective::kAllreduce:
    case Collective::kBroadcast:
    case Collective::kReducescatter:
      return spec.count;
    case Collective::kAllgather:
      return spec.counts.at(me);
    case Collective::kAlltoall: {
      const auto row = spec.counts.begin() + int64_t{me} * n;
      return std::accumulate(row, row + n, int64_t{0});
    }
    case Collective::kBarrier:
    case Collective::kJoin:
      return 0;
  }
  return 0;
}

int64_t output_count(const Spec& spec, Rank me, Rank n) {
  switch (spec.what) {
    case Collective::kAllreduce:
    case Collective::kBroadcast:
      return spec.count;
    case Collective::kReducescatter:
      return spec.counts.at(me);
    case Collective::kAllgather:
      return sum(spec.counts);
    case Collective::kAlltoall: {
      int64_t total = 0;
      for (Rank from = 0; from < n; ++from) total += spec.counts.at(int64_t{from} * n + me);
      return total;
    }
    case Collective::kBarrier:
    case Collective::kJoin:
      return 0;
  }
  return 0;
}

DType type_of(const Spec& spec, Buffer buffer) {
  return buffer == Buffer::kScratch && is_reduction(spec.what) ? accumulator_of(spec.dtype) : spec.dtype;
}

DType type_of(const Spec& spec, schedule::WireType wire) {
  return wire == schedule::WireType::kAccumulator ? accumulator_of(spec.dtype) : spec.dtype;
}

PreparedSchedule prepare_schedule(schedule::Schedule schedule, const Spec& spec, Rank me, Rank n) {
  const Checker checker(spec, me, n, schedule);
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    checker.check(schedule.steps[i], static_cast<int32_t>(i));
  RUEDA_CHECK(n != 2 || spec.what != Collective::kAllreduce || schedule::hears_before_writing(schedule),
              "an allreduce of two ranks overwrites its input before both have begun");
  PreparedSchedule prepared;
  prepared.schedule = std::move(schedule);
  link_dependents(prepared);
  fill_queues(prepared, spec);
  for (const Step& step : prepared.schedule.steps) {
    if (step.kind == StepKind::kEncode)
      prepared.encoded_count += step.to.count;
    else
      prepared.reads_input = prepared.reads_input || is_of_input(step.from) || is_of_input(step.from2);
  }
  return prepared;
}

}  // namespace rueda::backend
