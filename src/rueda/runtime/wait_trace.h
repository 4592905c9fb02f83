// What the timeline shows of tensors before they run: that they are negotiated, or wait for the rest of their
// bucket in a learned plan. Engine thread only.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "rueda/base/clock.h"
#include "rueda/base/trace_sink.h"
#include "rueda/control/messages.h"

namespace rueda::runtime {

class WaitTrace {
 public:
  WaitTrace(TraceSink& sink, bool is_coordinator) : sink_(sink), is_coordinator_(is_coordinator) {}

  [[nodiscard]] bool is_on() const { return sink_.is_on(); }
  // On rank 0 the coordinator traces what all ranks negotiate.
  void negotiation_begins(const control::Request& request);
  void negotiation_ends(const control::Request& request);
  void negotiation_ends(const std::string& name) { emit(TraceKind::kEnd, name, {}); }
  // A learned plan has taken it; it waits for its bucket now.
  void is_taken(const control::TensorRequest& request);
  void bucket_starts(const control::Bucket& bucket);
  void plan_begins();
  void plan_is_over(const std::string& why);
  void round_begins(Nanos now);

 private:
  void emit(TraceKind kind, const std::string& name, std::string_view phase);

  TraceSink& sink_;
  bool is_coordinator_;
  std::set<std::string> waiting_in_plan_;  // tensors whose wait for a bucket is shown
};

}  // namespace rueda::runtime
