// Operations between their start and their done, by the number that tracing gave them. Any thread.
#ifndef RUEDA_PLUGINS_JAX_IN_FLIGHT_H_
#define RUEDA_PLUGINS_JAX_IN_FLIGHT_H_

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace rueda::jax {

struct PendingOperation {
  std::string name;    // from the user or from tracing, for messages
  void* buffer;        // the engine reads it; reductions and broadcasts also write it
  int64_t handle = 0;  // of the engine; 0: the engine refused, and `why` says why
  std::string why;
  int32_t device = -1;    // of the buffer, if it is in the memory of a GPU
  void* event = nullptr;  // on a GPU: after which the engine reads the buffer; from rueda_make_event
};

class InFlight {
 public:
  bool has(int64_t id);
  void add(int64_t id, PendingOperation operation);
  // Returns the oldest operation with this number on this buffer; empty if there is none.
  std::optional<PendingOperation> take(int64_t id, const void* buffer);
  // Returns once the engine uses none of the buffers any more. Other threads may take
  // the operations meanwhile.
  void wait();
  // The same for a program that has failed: none of its operations will be taken any more.
  void abandon();

 private:
  std::mutex mutex_;
  // One number is in flight more than once only while independent runs of one program overlap.
  std::unordered_map<int64_t, std::deque<PendingOperation>> operations_;
};

// The only instance. Never destroyed, because threads of XLA may still use it while the process ends.
InFlight& in_flight();

}  // namespace rueda::jax

#endif  // RUEDA_PLUGINS_JAX_IN_FLIGHT_H_
