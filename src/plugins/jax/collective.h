// The operation of the engine that a call of XLA asks for, wherever its buffer lies.
#ifndef RUEDA_PLUGINS_JAX_COLLECTIVE_H_
#define RUEDA_PLUGINS_JAX_COLLECTIVE_H_

#include <string>

#include "plugins/jax/in_flight.h"
#include "plugins/jax/xla_ffi.h"
#include "rueda/rueda.h"

namespace rueda::jax {

inline constexpr const char* kBrokenProgram =
    "rueda: a collective was called with attributes this version does not know; rueda's Python package and "
    "librueda_jax.so are of different versions, so reinstall rueda.";

// Where a buffer lies.
struct BufferLocation {
  int32_t device = -1;    // -1: in host memory
  void* ready = nullptr;  // as in rueda_request
};

// Why an operation whose number is in flight is not started.
std::string called_twice(const std::string& name);

// Submits the operation that the attributes describe. It works in place if the result has the size
// of the buffer.
PendingOperation submit(const CallFrame* frame, const Buffer& buffer, const BufferLocation& place,
                        bool* is_understood);

// Marks the step that a group of calls ends, if its attributes name one and nothing has failed.
void mark_step(const CallFrame* frame, const std::string& failure);

// The result of an operation that has succeeded, or was launched. Returns why not, if it has another shape
// than XLA wants.
std::string find_result(const PendingOperation& operation, const Buffer& result, rueda_result_info* info);

}  // namespace rueda::jax

#endif  // RUEDA_PLUGINS_JAX_COLLECTIVE_H_
