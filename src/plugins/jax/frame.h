// Reads what XLA passes to a handler. Any thread; everything lives as long as the call.
#ifndef RUEDA_PLUGINS_JAX_FRAME_H_
#define RUEDA_PLUGINS_JAX_FRAME_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "plugins/jax/xla_ffi.h"

namespace rueda::jax {

// Answers XLA if it asks for the metadata of a handler, as it does at registration. Returns false for
// a real call.
bool answer_metadata(CallFrame* frame);

// Makes the error that a handler returns to fail the program with this sentence.
Error* make_error(const CallFrame* frame, ErrorCode code, const std::string& why);

// The stream on which a program on a GPU enqueues. Returns the error of XLA, if it has none.
Error* get_stream(const CallFrame* frame, void** stream);

// Returns an attribute of the call; empty if there is none of that name and type.
std::optional<int64_t> int_attribute(const CallFrame* frame, std::string_view name);
std::optional<double> double_attribute(const CallFrame* frame, std::string_view name);
std::optional<std::string> string_attribute(const CallFrame* frame, std::string_view name);

// The rueda_dtype of an element type; -1 if the engine has none.
int dtype_of(PrimitiveType type);
// The bytes of one element; 0 if the engine has no such type.
size_t element_bytes(PrimitiveType type);
size_t bytes_of(const Buffer& buffer);
inline std::span<const int64_t> shape_of(const Buffer& buffer) {
  return {buffer.dims, static_cast<size_t>(buffer.rank)};
}
// "[2, 3]"
std::string shape_text(std::span<const int64_t> shape);

}  // namespace rueda::jax

#endif  // RUEDA_PLUGINS_JAX_FRAME_H_
