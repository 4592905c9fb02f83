#include "rueda/runtime/wait_trace.h"

namespace rueda::runtime {
namespace {

// In a learned plan nothing is negotiated: a tensor waits until this rank has submitted the others
// of its bucket.
constexpr std::string_view kWaitForBucket = "WAIT_FOR_BUCKET";

}  // namespace

void WaitTrace::emit(TraceKind kind, const std::string& name, std::string_view phase) {
  if (!is_on()) return;
  sink_.emit({.kind = kind, .when = monotonic_now(), .track = name, .name = phase});
}

void WaitTrace::negotiation_begins(const control::Request& request) {
  if (!is_on() || is_coordinator_) return;
  if (const auto* change = std::get_if<control::SetChange>(&request))
    return emit(TraceKind::kBegin, change->name, "NEGOTIATE_PROCESS_SET");
  const auto& tensor = std::get<control::TensorRequest>(request);
  if (tensor.what != Collective::kJoin)
    emit(TraceKind::kBegin, tensor.name, "NEGOTIATE_" + std::string(name_of(tensor.what)));
}

void WaitTrace::negotiation_ends(const control::Request& request) {
  const auto* tensor = std::get_if<control::TensorRequest>(&request);
  if (is_coordinator_ || (tensor != nullptr && tensor->what == Collective::kJoin)) return;
  negotiation_ends(control::name_of(request).second);
}

void WaitTrace::is_taken(const control::TensorRequest& request) {
  if (!is_on() || request.what == Collective::kBarrier || request.what == Collective::kJoin) return;
  if (waiting_in_plan_.insert(request.name).second) emit(TraceKind::kBegin, request.name, kWaitForBucket);
}

void WaitTrace::bucket_starts(const control::Bucket& bucket) {
  if (!is_on() && waiting_in_plan_.empty()) return;  // the timeline may have been stopped meanwhile
  if (is_coordinator_) round_begins(monotonic_now());
  for (const control::Entry& entry : bucket.entries)
    if (waiting_in_plan_.erase(entry.name) > 0) emit(TraceKind::kEnd, entry.name, {});
}

void WaitTrace::plan_begins() {
  if (!sink_.is_recording()) return;
  const Nanos now = monotonic_now();
  sink_.record(TraceSpan{.kind = SpanKind::kPlanBegins, .begin = now, .end = now});
}

void WaitTrace::plan_is_over(const std::string& why) {
  if (sink_.is_recording()) {
    const Nanos now = monotonic_now();
    sink_.record(TraceSpan{.kind = SpanKind::kPlanEnds, .begin = now, .end = now, .text = why});
  }
  for (const std::string& name : waiting_in_plan_) emit(TraceKind::kEnd, name, {});
  waiting_in_plan_.clear();
}

void WaitTrace::round_begins(Nanos now) {
  if (is_on()) sink_.emit({.kind = TraceKind::kCycle, .when = now, .name = "CYCLE_START"});
}

}  // namespace rueda::runtime
