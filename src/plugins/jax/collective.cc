#include "plugins/jax/collective.h"

#include <algorithm>
#include <optional>

#include "plugins/jax/frame.h"
#include "plugins/jax/prepared.h"

namespace rueda::jax {

std::string called_twice(const std::string& name) {
  return "rueda: " + name +
         " was called again before its first call had ended: either one program calls a jitted function for "
         "several values, or several threads run programs that call it; remove jax.jit from that function.";
}

PendingOperation submit(const CallFrame* frame, const Buffer& buffer, const BufferLocation& place,
                        bool* is_understood) {
  const auto id = int_attribute(frame, "id");
  const auto name = string_attribute(frame, "name");
  const auto what = int_attribute(frame, "what");
  const auto op = int_attribute(frame, "op");
  const auto process_set = int_attribute(frame, "process_set");
  const auto root_rank = int_attribute(frame, "root_rank");
  const auto prescale = double_attribute(frame, "prescale");
  const auto postscale = double_attribute(frame, "postscale");
  *is_understood = id && name && what && op && process_set && root_rank && prescale && postscale;
  PendingOperation operation{.name = name.value_or(""),
                             .buffer = buffer.data,
                             .handle = 0,
                             .why = "",
                             .device = place.device,
                             .event = place.ready};
  if (!*is_understood) {
    return operation;
  }
  const bool is_in_place = *what == RUEDA_ALLREDUCE || *what == RUEDA_BROADCAST;
  rueda_request request{};
  request.struct_size = sizeof request;
  request.what = static_cast<int32_t>(*what);
  request.dtype = dtype_of(buffer.dtype);
  request.op = static_cast<int32_t>(*op);
  request.name = operation.name.c_str();
  request.process_set = static_cast<int32_t>(*process_set);
  request.root_rank = static_cast<int32_t>(*root_rank);
  request.prescale = *prescale;
  request.postscale = *postscale;
  request.ndim = static_cast<int32_t>(buffer.rank);
  request.device = place.device;
  request.memory = place.device < 0 ? RUEDA_HOST_MEMORY : RUEDA_DEVICE_MEMORY;
  request.ready = place.ready;
  request.shape = buffer.dims;
  request.input = buffer.data;
  request.output = is_in_place ? buffer.data : nullptr;
  request.wire = int_attribute(frame, "wire").value_or(RUEDA_WIRE_DEFAULT);
  if (is_in_place) {
    operation.handle = prepared_operations().start(*id, request);
  }
  if (operation.handle == 0 && rueda_submit(&request, 1, &operation.handle) != RUEDA_OK) {
    operation.handle = 0;
    operation.why = rueda_last_error();
  }
  return operation;
}

void mark_step(const CallFrame* frame, const std::string& failure) {
  const int64_t source = int_attribute(frame, "step").value_or(0);
  if (source != 0 && failure.empty()) {
    rueda_mark_step(source);
  }
}

std::string find_result(const PendingOperation& operation, const Buffer& result, rueda_result_info* info) {
  info->struct_size = sizeof *info;
  if (rueda_result(operation.handle, 0, info) != RUEDA_OK) {
    return rueda_last_error();
  }
  const std::span<const int64_t> shape{info->shape, static_cast<size_t>(info->ndim)};
  const std::span<const int64_t> wanted = shape_of(result);
  if (info->bytes != bytes_of(result) ||
      !std::equal(shape.begin(), shape.end(), wanted.begin(), wanted.end())) {
    return "The result of " + operation.name + " has the shape " + shape_text(shape) +
           ", but the compiled program expects " + shape_text(wanted) +
           ": within jit every rank must give equally many rows; call it outside jit for uneven ones.";
  }
  return "";
}

}  // namespace rueda::jax
