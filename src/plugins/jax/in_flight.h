// Operations between their start and their done, by the number the trace gave them. Any thread.
#ifndef RUEDA_PLUGINS_JAX_IN_FLIGHT_H_
#define RUEDA_PLUGINS_JAX_IN_FLIGHT_H_

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace rueda::jax {

struct Operation {
  std::string name;    // the user's or the trace's, for messages
  void* buffer;        // what the engine reads, and for reductions and broadcasts writes
  int64_t handle = 0;  // of the engine; 0: it refused, and why says so
  std::string why;
};

class InFlight {
 public:
  bool has(int64_t id);
  void add(int64_t id, Operation operation);
  // The oldest operation with this number on this buffer; empty if there is none.
  std::optional<Operation> take(int64_t id, const void* buffer);
  // Returns once the engine uses none of the buffers any more. Whoever takes the operations meanwhile may.
  void wait();

 private:
  std::mutex mutex_;
  // One number is in flight more than once only while independent runs of one program overlap.
  std::unordered_map<int64_t, std::deque<Operation>> operations_;
};

// The one of this process. Never destroyed: threads of XLA may still use it while the process ends.
InFlight& in_flight();

}  // namespace rueda::jax

#endif  // RUEDA_PLUGINS_JAX_IN_FLIGHT_H_
