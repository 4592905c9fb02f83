#include <algorithm>
#include <array>
#include <numeric>

#include "rueda/schedule/verify_parts.h"

namespace rueda::schedule {
namespace {

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

// Says why a step is malformed; empty if it is not.
class FormCheck {
 public:
  FormCheck(const Spec& spec, Rank size, Rank rank, const Schedule& schedule)
      : spec_(spec),
        size_(size),
        rank_(rank),
        scratch_(schedule.scratch_count),
        wire_(schedule.wire_count),
        shape_(shape_of(spec, size, rank)) {}

  [[nodiscard]] std::string why(const Step& step, int32_t index) const {
    for (int32_t earlier : step.after)
      if (earlier < 0 || earlier >= index) return "waits for a step that is not an earlier one";
    for (const Slice* slice : {&step.to, &step.from, &step.from2})
      if (!is_in_bounds(*slice)) return "has a slice out of bounds";
    if (is_message(step) && (step.peer < 0 || step.peer >= size_ || step.peer == rank_))
      return "has no such peer";
    if (step.kind != StepKind::kSend && step.to.buffer == Buffer::kInput) return "writes the input";
    if (!has_whole_blocks(step)) return "has a part of an encoded block";
    if (step.to.buffer == Buffer::kWire && step.kind != StepKind::kEncode && step.kind != StepKind::kRecv &&
        step.kind != StepKind::kSend)
      return "writes to the wire buffer without encoding";
    switch (step.kind) {
      case StepKind::kSend:
        return why_send(step);
      case StepKind::kRecv:
        return why_arriving(step);
      case StepKind::kRecvReduce:
        if (step.to.count != step.from.count) return "changes the number of elements";
        if (!may_hold_sums(step.to.buffer)) return "would round a partial sum";
        return why_arriving(step);
      case StepKind::kCopy:
        return why_copy(step);
      case StepKind::kReduce:
      case StepKind::kAdasum:
        return why_reduce(step);
      case StepKind::kFinish:
        return why_finish(step);
      case StepKind::kEncode:
        return why_encode(step);
    }
    return "has an unknown kind";
  }

 private:
  [[nodiscard]] bool is_in_bounds(const Slice& slice) const {
    const int64_t size = slice.buffer == Buffer::kInput    ? shape_.input
                         : slice.buffer == Buffer::kOutput ? shape_.output
                         : slice.buffer == Buffer::kWire   ? wire_
                                                           : scratch_;
    return slice.begin >= 0 && slice.count >= 0 && slice.begin + slice.count <= size;
  }
  [[nodiscard]] static bool has_whole_blocks(const Step& step) {
    return std::ranges::all_of(std::array{step.to, step.from, step.from2}, [](const Slice& slice) {
      return slice.buffer != Buffer::kWire ||
             (slice.begin % kWireBlock == 0 && slice.count % kWireBlock == 0);
    });
  }
  [[nodiscard]] bool may_hold_sums(Buffer buffer) const {
    return is_reduction(spec_.what) &&
           (buffer == Buffer::kScratch || (buffer == Buffer::kOutput && can_accumulate_in_output(spec_)));
  }
  [[nodiscard]] std::string why_send(const Step& step) const {
    const bool is_sum = step.from.buffer == Buffer::kScratch && is_reduction(spec_.what);
    if ((step.wire == WireType::kAccumulator) != is_sum ||
        (step.wire == WireType::kEncoded) != (step.from.buffer == Buffer::kWire))
      return "names a wire type that differs from what it sends";
    return {};
  }
  [[nodiscard]] std::string why_arriving(const Step& step) const {
    if ((step.wire == WireType::kEncoded) != (step.to.buffer == Buffer::kWire))
      return "receives encoded blocks where others belong, or the other way round";
    if (step.wire == WireType::kAccumulator && !may_hold_sums(step.to.buffer))
      return "would round a partial sum";
    return {};
  }
  [[nodiscard]] std::string why_copy(const Step& step) const {
    if (step.to.count != step.from.count) return "changes the number of elements";
    const bool is_sum = step.from.buffer == Buffer::kScratch || step.from.buffer == Buffer::kWire;
    if (is_reduction(spec_.what) && is_sum && step.to.buffer == Buffer::kOutput)
      return "copies a sum to the output without finishing it";
    return {};
  }
  [[nodiscard]] std::string why_reduce(const Step& step) const {
    if (step.to.count != step.from.count || step.to.count != step.from2.count)
      return "changes the number of elements";
    if (!may_hold_sums(step.to.buffer)) return "would round a partial sum";
    if (step.kind == StepKind::kAdasum &&
        (!may_hold_sums(step.from.buffer) || !may_hold_sums(step.from2.buffer)))
      return "takes Adasum operands of another type";
    return {};
  }
  [[nodiscard]] std::string why_finish(const Step& step) const {
    if (!is_reduction(spec_.what)) return "finishes where nothing is reduced";
    if (step.to.count != step.from.count) return "changes the number of elements";
    if (step.to.buffer != Buffer::kOutput) return "does not finish into the output";
    const bool is_sum = step.from.buffer == Buffer::kScratch || step.from.buffer == Buffer::kWire;
    if (!is_sum && !(step.from == step.to)) return "finishes from a wrong place";
    return {};
  }
  [[nodiscard]] std::string why_encode(const Step& step) const {
    if (step.to.count != step.from.count) return "changes the number of elements";
    if (step.to.buffer != Buffer::kWire || step.from.buffer == Buffer::kWire) return "does not encode";
    if (step.to.begin / spec_.count > 1 || step.to.begin % spec_.count + step.to.count > spec_.count)
      return "encodes to where messages arrive";
    return {};
  }

  const Spec& spec_;
  Rank size_;
  Rank rank_;
  int64_t scratch_;
  int64_t wire_;
  Shape shape_;
};

}  // namespace

Shape shape_of(const Spec& spec, Rank size, Rank rank) {
  switch (spec.what) {
    case Collective::kAllgather:
      return {.input = spec.counts[rank], .output = sum(spec.counts)};
    case Collective::kReducescatter:
      return {.input = spec.count, .output = spec.counts[rank]};
    case Collective::kAlltoall: {
      Shape shape;
      for (Rank other = 0; other < size; ++other) {
        shape.input += spec.counts[rank * size + other];
        shape.output += spec.counts[other * size + rank];
      }
      return shape;
    }
    default:
      return {.input = spec.count, .output = spec.count};
  }
}

Status step_fault(Rank rank, size_t step, const Schedule& schedule, const std::string& why) {
  return {Code::kInternal, std::string(schedule.name) + ": step " + std::to_string(step) + " of rank " +
                               std::to_string(rank) + " " + why};
}

Status check_form(const Spec& spec, Rank size, Rank rank, const Schedule& schedule) {
  const FormCheck check(spec, size, rank, schedule);
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    if (const auto why = check.why(schedule.steps[i], static_cast<int32_t>(i)); !why.empty())
      return step_fault(rank, i, schedule, why);
  return Status::ok();
}

}  // namespace rueda::schedule
