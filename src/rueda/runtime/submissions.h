// What programs submit: completed and checked, as far as one rank alone can check it, and then registered.
// Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/trace_sink.h"
#include "rueda/runtime/counters.h"
#include "rueda/runtime/groups.h"
#include "rueda/runtime/observer.h"
#include "rueda/runtime/operations.h"
#include "rueda/runtime/ready_streams.h"
#include "rueda/runtime/residuals.h"

namespace rueda::runtime {

class Submissions {
 public:
  // All outlive this object.
  struct Parts {
    const Session& session;
    const Groups& groups;
    Operations& operations;
    Observer& observer;
    ReadyStreams& ready_streams;
    ResidualStore& residuals;
    EngineCounters& counters;
    TraceSink& trace;
  };
  explicit Submissions(Parts parts) : parts_(parts) {}

  // Registers the tensors as one operation. will_wait: the caller's next call is wait().
  Result<int64_t> submit(std::vector<Tensor> tensors, bool will_wait = false);
  // Describes an operation of one tensor, without addresses, and returns the number by which it starts.
  Result<int64_t> prepare(Tensor tensor);
  // Submits it. Afterwards wake(), once for several.
  Result<int64_t> start(const PreparedStart& start);
  void wake() {
    const bool may_have_ended = parts_.session.size() == 1;
    if (!may_have_ended || parts_.operations.has_submitted()) parts_.operations.wake();
  }
  [[nodiscard]] ResidualStore& residuals() const { return parts_.residuals; }
  // For Operations, in a job of one rank: ends the operation, if it needs no engine.
  bool end_now(Operation& operation) const;

 private:
  Status complete(Tensor& tensor) const;

  Parts parts_;
};

}  // namespace rueda::runtime
