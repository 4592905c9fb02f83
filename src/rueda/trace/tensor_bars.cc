#include "rueda/trace/tensor_bars.h"

#include <algorithm>
#include <cctype>

namespace rueda::trace {
namespace {

constexpr std::string_view kError = "ERROR";
// In a learned plan nothing is negotiated: a tensor waits until this rank has submitted the others of its
// bucket.
constexpr std::string_view kWaitForBucket = "WAIT_FOR_BUCKET";

Collective collective_of(OperationCode code) {
  const int what = code & 0xFF;
  return what < count_of(Collective{}) ? static_cast<Collective>(what) : Collective::kAllreduce;
}

std::string_view operation_name(OperationCode code) {
  return (code & kAdasumCode) != 0 ? "ADASUM" : name_of(collective_of(code));
}

std::string negotiate_name(OperationCode code) { return "NEGOTIATE_" + std::string(operation_name(code)); }

// LOCAL_ALLREDUCE, NATIVE_BCAST: the backend and the collective, as in Horovod's timelines.
std::string transfer_name(const Call& call) {
  std::string text(call.backend);
  text += '_';
  text += call.what == Collective::kBroadcast ? "bcast" : name_of(call.what);
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

}  // namespace

void TensorBars::add(const Span& ready, BarSink& sink) {
  const auto code = static_cast<OperationCode>(ready.value);
  const auto [at, is_first] = waiting_.try_emplace(ready.text, ready.begin);
  at->second = ready.begin;
  if (is_first) sink.begin(ready.text, negotiate_name(code), ready.begin);
  if (collective_of(code) != Collective::kBarrier) sink.ready(ready.text, ready.peer, ready.begin);
}

void TensorBars::end_wait(const TensorRecord& tensor, std::string_view name, Nanos when, BarSink& sink) {
  if (const auto at = waiting_.find(tensor.name); at != waiting_.end()) {
    sink.end(tensor.name, std::max(when, at->second), {});
    waiting_.erase(at);
  } else if (tensor.submitted != 0) {
    sink.begin(tensor.name, name, std::min(tensor.submitted, when));
    sink.end(tensor.name, when, {});
  }
}

void TensorBars::add(const TensorRecord& tensor, BarSink& sink) {
  const Collective what = collective_of(tensor.operation);
  if (what == Collective::kJoin) return;
  const std::string negotiate = negotiate_name(tensor.operation);
  if (tensor.failed != 0) {
    end_wait(tensor, negotiate, tensor.failed, sink);
    sink.begin(tensor.name, kError, tensor.failed);
    return sink.end(tensor.name, tensor.failed, {});
  }
  if (tensor.call != call_tag(call_.generation, call_.order)) return;  // its call is missing
  end_wait(tensor, call_.is_planned ? kWaitForBucket : negotiate, call_.ordered, sink);
  if (what != Collective::kBarrier) draw_call(tensor, sink);
}

void TensorBars::draw_call(const TensorRecord& tensor, BarSink& sink) const {
  const auto draw = [&](std::string_view name, Nanos begin, Nanos end) {
    sink.begin(tensor.name, name, begin);
    sink.end(tensor.name, end, {});
  };
  const Nanos began = std::max(call_.started, call_.transfer_began);
  const Nanos sent = call_.unpack_began != 0 ? call_.unpack_began : call_.ended;
  sink.begin(tensor.name, operation_name(tensor.operation), call_.ordered);
  draw("QUEUE", call_.ordered, call_.started);
  if (began > call_.started) draw("MEMCPY_IN_FUSION_BUFFER", call_.started, began);
  draw(transfer_name(call_), began, sent);
  if (sent < call_.ended) draw("MEMCPY_OUT_FUSION_BUFFER", sent, call_.ended);
  sink.end(tensor.name, call_.ended, tensor.result);
}

void TensorBars::close(BarSink& sink) {
  for (const auto& [name, when] : waiting_) sink.end(name, when, {});
  waiting_.clear();
}

}  // namespace rueda::trace
