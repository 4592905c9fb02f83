#include "rueda/backend/device/staged_call.h"

#include <algorithm>
#include <iterator>

#include "rueda/backend/cuda_tensor.h"

namespace rueda::backend {
namespace {

constexpr size_t kOutputAlignment = 64;  // bytes; the output begins at one

size_t bytes_of(int64_t elements, const Call& call) {
  return static_cast<size_t>(elements) * size_of(call.spec.dtype);
}

size_t output_begin(const Section& plan, const Call& call) {
  return plan.is_in_place
             ? 0
             : (bytes_of(plan.given, call) + kOutputAlignment - 1) / kOutputAlignment * kOutputAlignment;
}

// What this process alone sees. The code says so: another one might count as the same refusal on every rank.
Status local_fault(const Status& why) { return {Code::kUnavailable, why.why}; }

bool needs_input(const Call& call) {
  return call.spec.what != Collective::kBroadcast || call.spec.root == call.group->me;
}

template <class T>
T& entry_of(std::vector<std::pair<DeviceCopier*, T>>& entries, DeviceCopier* copier) {
  const auto found = std::ranges::find(entries, copier, &std::pair<DeviceCopier*, T>::first);
  if (found != entries.end()) return found->second;
  return entries.emplace_back(copier, T()).second;
}

}  // namespace

bool StagedSection::has_come() const {
  return std::ranges::all_of(coming, [](const auto& event) { return event->outcome().has_value(); });
}

StagedCall::StagedCall(const Call& of, size_t section_bytes)
    : call(of),
      is_on_device_(std::ranges::any_of(
          of.segments, [](const Segment& segment) { return segment.memory.kind == MemoryKind::kDevice; })),
      has_tensors_(std::ranges::any_of(of.segments,
                                       [](const Segment& segment) { return segment.memory.device >= 0; })) {
  if (!is_on_device_) {
    sections.resize(1);
    fetched = 1;
    return;
  }
  cut_sections(section_bytes);
}

void StagedCall::cut_sections(size_t section_bytes) {
  sections.clear();
  for (Section& plan : cut(call, section_bytes)) sections.emplace_back().plan = std::move(plan);
  if (!has_tensors_ || is_cancelled) fetched = sections.size();
}

void StagedCall::decide(StagingBuffers& chosen, std::optional<size_t> slot_section_bytes) {
  buffers = &chosen;
  uses_slots = slot_section_bytes.has_value();
  if (uses_slots) cut_sections(*slot_section_bytes);
}

bool StagedCall::is_over() const {
  const bool has_come = std::ranges::all_of(sections, [](const StagedSection& s) { return s.has_come(); });
  if (is_cancelled || !status.is_ok()) return has_come && ended == started && !wants_start();
  return ended == sections.size();
}

Status StagedCall::prepare(DeviceCopiers& copiers) {
  copier_of_.assign(call.segments.size(), nullptr);
  TensorChecks tensors;
  for (size_t i = 0; has_tensors_ && i < call.segments.size(); ++i) {
    const Segment& segment = call.segments[i];
    culprit = i;
    const Result<DeviceCopier*> copier = copiers.get(segment.memory.device);
    if (!copier.is_ok()) return local_fault(copier.status());
    copier_of_[i] = copier.value();
    if (Status s = tensors.check(copier.value()->device(), segment); !s.is_ok()) return s;
  }
  culprit.reset();
  return Status::ok();
}

Result<bool> StagedCall::is_ready() {
  for (; has_tensors_ && ready_ < call.segments.size(); ++ready_) {
    const Segment& segment = call.segments[ready_];
    if (segment.memory.ready == nullptr) continue;
    const std::optional<Status> outcome =
        cuda::outcome_of(*copier_of_[ready_]->device(), static_cast<cuda::CUevent>(segment.memory.ready));
    if (!outcome) return false;
    if (outcome->is_ok()) continue;
    culprit = ready_;
    return local_fault(*outcome);
  }
  return true;
}

std::vector<std::pair<DeviceCopier*, std::vector<cuda::CUevent>>> StagedCall::awaited() const {
  std::vector<std::pair<DeviceCopier*, std::vector<cuda::CUevent>>> events;
  for (size_t i = ready_; has_tensors_ && i < call.segments.size(); ++i) {
    const auto ready = static_cast<cuda::CUevent>(call.segments[i].memory.ready);
    if (ready == nullptr) continue;
    std::vector<cuda::CUevent>& of_copier = entry_of(events, copier_of_[i]);
    if (std::ranges::find(of_copier, ready) == of_copier.end()) of_copier.push_back(ready);
  }
  return events;
}

// place: where the section's input or output begins in its buffer.
std::vector<std::pair<DeviceCopier*, std::vector<cuda::TensorRun>>> StagedCall::runs_of(
    const std::vector<SectionRun>& runs, size_t place, bool is_output) const {
  std::vector<std::pair<DeviceCopier*, std::vector<cuda::TensorRun>>> made;
  for (const SectionRun& run : runs) {
    const Segment& segment = call.segments[run.segment];
    // A backend writes to outputs and leaves inputs as they are; the copies take one type of address.
    auto* tensor = static_cast<std::byte*>(is_output ? segment.output : const_cast<void*>(segment.input));
    entry_of(made, copier_of_[run.segment])
        .push_back({.tensor = tensor + bytes_of(run.begin, call),
                    .offset = place + bytes_of(run.at, call),
                    .bytes = bytes_of(run.count, call)});
  }
  return made;
}

Result<bool> StagedCall::fetch() {
  StagedSection& section = sections[fetched];
  const size_t place = output_begin(section.plan, call);
  const size_t bytes = place + bytes_of(section.plan.taken, call);
  const Result<StagingBuffer*> buffer =
      buffers->take(copier_of_.front()->device(), std::max(bytes, bytes_of(section.plan.given, call)));
  if (!buffer.is_ok()) {
    const std::vector<SectionRun>& runs = section.plan.in.empty() ? section.plan.out : section.plan.in;
    if (!runs.empty()) culprit = runs.front().segment;
    return local_fault(buffer.status());
  }
  if (buffer.value() == nullptr) return false;
  section.buffer = buffer.value();
  std::byte* const memory = section.buffer->data();
  if (needs_input(call)) {
    for (const auto& [copier, runs] : runs_of(section.plan.in, 0, false)) {
      auto event = copier->copy(DeviceCopier::Way::kToHost, runs, memory);
      if (!event.is_ok()) return local_fault(event.status());
      section.coming.push_back(std::move(event).value());
    }
  }
  ++fetched;
  return true;
}

Status StagedCall::store(StagedSection& section) {
  if (section.buffer == nullptr) return Status::ok();
  StagingBuffer& buffer = *std::exchange(section.buffer, nullptr);
  buffer.is_taken = false;  // it is free when it has been copied from
  const size_t place = output_begin(section.plan, call);
  for (const auto& [copier, runs] : runs_of(section.plan.out, place, true)) {
    auto copied = copier->copy(DeviceCopier::Way::kToDevice, runs, buffer.data());
    if (!copied.is_ok()) return local_fault(copied.status());
    buffer.leaving.push_back(copied.value());
    entry_of(stored_, copier) = std::move(copied).value();
  }
  if (ended < sections.size() || stored_.empty()) return Status::ok();
  std::vector<std::shared_ptr<cuda::Event>> last;
  for (const auto& [copier, copy] : stored_) last.push_back(copy);
  event = std::make_shared<CudaEvent>(std::move(last));
  return Status::ok();
}

Call StagedCall::inner_call(CallId id) {
  StagedSection& section = sections[started];
  section.inner = id;
  Call inner = call;
  inner.id = id;
  if (!is_on_device_) return inner;
  const Section& plan = section.plan;
  section.segment = {.count = plan.given, .counts = plan.spec.counts};
  if (uses_slots) section.segment.memory.kind = MemoryKind::kDevice;
  if (section.buffer != nullptr) {
    section.segment.input = section.buffer->data();
    section.segment.output = section.buffer->data() + output_begin(plan, call);
  }
  // The place in the global order chooses a channel: sections that follow one another take turns.
  inner.order = call.order + started;
  inner.spec = plan.spec;
  inner.segments = {&section.segment, 1};
  inner.activities = nullptr;
  // The tensors are on the device, so whatever happens in host memory leaves them as they are. But no member
  // may be done before all have started.
  inner.may_be_cancelled = call.may_be_cancelled && !schedule::waits_for_all(plan.spec);
  return inner;
}

void StagedCall::fail(const Status& why) {
  if (status.is_ok()) status = why;
}

void StagedCall::return_buffers() {
  for (StagedSection& section : sections)
    if (section.buffer != nullptr && section.has_come())
      std::exchange(section.buffer, nullptr)->is_taken = false;
}

Done StagedCall::done() const {
  Done done{.id = call.id, .status = status, .how = how, .event = event, .segment = culprit};
  if (!status.is_ok() || is_cancelled) done.event = nullptr;
  return done;
}

std::vector<DeviceCopier*> StagedCall::copiers() const {
  std::vector<DeviceCopier*> copiers;
  for (DeviceCopier* copier : copier_of_)
    if (copier != nullptr && std::ranges::find(copiers, copier) == copiers.end()) copiers.push_back(copier);
  return copiers;
}

}  // namespace rueda::backend
