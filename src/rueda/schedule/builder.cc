#include "rueda/schedule/builder.h"

#include <algorithm>
#include <string>

#include "rueda/base/check.h"

namespace rueda::schedule {

namespace {
constexpr int64_t kScratchAlign = 16;  // elements: a cache line of float32, two of float64
}  // namespace

Slice part(const Slice& slice, int64_t offset, int64_t count) {
  RUEDA_CHECK(offset >= 0 && count >= 0 && offset + count <= slice.count, "a part lies within its slice");
  return {slice.buffer, slice.begin + offset, count};
}

bool may_alias(Collective what) { return what == Collective::kAllreduce || what == Collective::kBroadcast; }

bool can_accumulate_in_output(const Spec& spec) { return accumulator_of(spec.dtype) == spec.dtype; }

Builder::Builder(const Spec& spec) : spec_(spec) {}

Slice Builder::scratch(int64_t count) {
  const int64_t begin = (schedule_.scratch_count + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
  if (count > 0) schedule_.scratch_count = begin + count;
  return {Buffer::kScratch, begin, count};
}

Slice Builder::wire(int64_t count) {
  const int64_t begin = schedule_.wire_count;
  schedule_.wire_count += count;
  return {Buffer::kWire, begin, count};
}

WireType Builder::wire_of(const Slice& from) const {
  if (from.buffer == Buffer::kWire) return WireType::kEncoded;
  return from.buffer == Buffer::kScratch && is_reduction(spec_.what) ? WireType::kAccumulator
                                                                     : WireType::kElement;
}

StepId Builder::send(Rank peer, const Slice& from) {
  if (from.count == 0) return kNoStep;
  return add({.kind = StepKind::kSend, .peer = peer, .from = from, .wire = wire_of(from)});
}

StepId Builder::recv(Rank peer, const Slice& to, WireType wire) {
  if (to.count == 0) return kNoStep;
  return add({.kind = StepKind::kRecv, .peer = peer, .to = to, .wire = wire});
}

StepId Builder::recv_reduce(Rank peer, const Slice& to, const Slice& from, WireType wire) {
  RUEDA_CHECK(to.count == from.count, "a reduction keeps the number of elements");
  if (to.count == 0) return kNoStep;
  return add({.kind = StepKind::kRecvReduce, .peer = peer, .to = to, .from = from, .wire = wire});
}

StepId Builder::copy(const Slice& to, const Slice& from) {
  RUEDA_CHECK(to.count == from.count, "a copy keeps the number of elements");
  if (to.count == 0) return kNoStep;
  return add({.kind = StepKind::kCopy, .to = to, .from = from});
}

StepId Builder::reduce(const Slice& to, const Slice& from, const Slice& from2) {
  RUEDA_CHECK(to.count == from.count && to.count == from2.count, "a reduction keeps the number of elements");
  if (to.count == 0) return kNoStep;
  return add({.kind = StepKind::kReduce, .to = to, .from = from, .from2 = from2});
}

StepId Builder::adasum(const Slice& to, const Slice& from, const Slice& from2) {
  RUEDA_CHECK(to.count == from.count && to.count == from2.count, "a reduction keeps the number of elements");
  if (to.count == 0) return kNoStep;
  return add({.kind = StepKind::kAdasum, .to = to, .from = from, .from2 = from2});
}

StepId Builder::finish(const Slice& to, const Slice& from) {
  RUEDA_CHECK(to.count == from.count, "finishing keeps the number of elements");
  if (to.count == 0) return kNoStep;
  return add({.kind = StepKind::kFinish, .to = to, .from = from});
}

StepId Builder::encode(const Slice& to, const Slice& from) {
  RUEDA_CHECK(to.count == from.count, "encoding keeps the number of elements");
  if (to.count == 0) return kNoStep;
  return add({.kind = StepKind::kEncode, .to = to, .from = from});
}

StepId Builder::signal(Rank peer) {
  return add({.kind = StepKind::kSend, .peer = peer, .from = input(0, 0)});
}

StepId Builder::await(Rank peer) { return add({.kind = StepKind::kRecv, .peer = peer, .to = output(0, 0)}); }

void Builder::order(StepId later, StepId earlier) {
  if (later == kNoStep || earlier == kNoStep) return;
  RUEDA_CHECK(earlier < later, "a step waits only for earlier ones");
  auto& after = schedule_.steps[later].after;
  const auto place = std::lower_bound(after.begin(), after.end(), earlier);
  if (place == after.end() || *place != earlier) after.insert(place, earlier);
}

void Builder::deliver(const Slice& to, const Slice& value) {
  if (value.buffer == Buffer::kScratch) {
    finish(to, value);
    return;
  }
  if (!(value == to)) copy(to, value);
  if (!spec_.scale.is_identity()) finish(to, to);
}

Schedule Builder::take(std::string_view name) {
  schedule_.name = name;
  return std::move(schedule_);
}

StepId Builder::add(Step step) {
  depend(step.from, false, step.after);
  depend(step.from2, false, step.after);
  depend(step.to, true, step.after);
  std::sort(step.after.begin(), step.after.end());
  step.after.erase(std::unique(step.after.begin(), step.after.end()), step.after.end());
  schedule_.steps.push_back(std::move(step));
  return static_cast<StepId>(schedule_.steps.size()) - 1;
}

void Builder::depend(const Slice& slice, bool is_write, std::vector<int32_t>& after) {
  if (slice.count == 0) return;
  const Buffer buffer =
      slice.buffer == Buffer::kOutput && may_alias(spec_.what) ? Buffer::kInput : slice.buffer;
  Hazards& hazards = hazards_[static_cast<size_t>(buffer)];
  const auto step = static_cast<int32_t>(schedule_.steps.size());
  if (is_write)
    hazards.write(step, slice.begin, slice.begin + slice.count, after);
  else
    hazards.read(step, slice.begin, slice.begin + slice.count, after);
}

}  // namespace rueda::schedule
