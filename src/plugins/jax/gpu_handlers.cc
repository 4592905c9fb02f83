// The same calls for programs on a GPU. XLA runs them on the host, one after the other and in the same order
// on every rank, and what they enqueue runs later on the stream of the call. start records an event on that
// stream and submits; done waits on the host until the operations were launched, and has the stream wait for
// them. Every start comes before the first done of its group, so the ranks launch meanwhile.
//
// The handlers do not declare that they may be captured into a command buffer: a captured call would submit
// only once. A failed call ends the program on every rank at the same place; what was started before has
// ended then, because XLA frees its buffers.

#include <string>
#include <utility>

#include "plugins/jax/collective.h"
#include "plugins/jax/frame.h"
#include "plugins/jax/in_flight.h"
#include "rueda/rueda.h"

namespace rueda::jax {
namespace {

// The device of a buffer. An empty buffer may have no address; its device is that of the call's stream.
int32_t device_of(const Buffer& buffer, void* stream) {
  const int device = buffer.data == nullptr ? -1 : rueda_device_of(buffer.data);
  return device < 0 ? rueda_device_of_stream(stream) : device;
}

// Starts the operation after what is enqueued on the stream so far. If that fails, its `why` says so.
PendingOperation start(const CallFrame* frame, const Buffer& buffer, void* stream, bool* is_understood) {
  BufferLocation place{.device = device_of(buffer, stream), .ready = nullptr};
  if (rueda_make_event(place.device, &place.ready) == RUEDA_OK &&
      rueda_record_event(place.device, place.ready, stream) == RUEDA_OK) {
    return submit(frame, buffer, place, is_understood);
  }
  *is_understood = true;
  const std::string name = string_attribute(frame, "name").value_or("");
  return {.name = name,
          .buffer = buffer.data,
          .handle = 0,
          .why = name + ": " + rueda_last_error(),
          .device = place.device,
          .event = place.ready};
}

// Has the stream wait for one operation and deliver its result. Returns why it failed, or an empty text.
std::string finish(const PendingOperation& operation, const Buffer& argument, const Buffer& result,
                   void* stream) {
  std::string why = operation.why;
  if (operation.handle != 0) {
    // Ends although it has no limit: the engine ends every operation, at the latest when a peer is lost.
    if (rueda_wait_on_stream(operation.handle, stream, -1.0) != RUEDA_OK) {
      why = rueda_last_error();
    } else if (argument.data != result.data) {
      rueda_result_info info{};
      why = find_result(operation, result, &info);
      if (why.empty() && info.bytes != 0 &&
          rueda_copy_on_stream(operation.device, stream, result.data, info.data, info.bytes) != RUEDA_OK) {
        why = rueda_last_error();
      }
    }
    rueda_release_on_stream(operation.handle, operation.device, stream);
  }
  if (operation.event != nullptr) {
    rueda_release_event(operation.device, operation.event);
  }
  return why;
}

}  // namespace

// (x) -> x, in place. Attributes: as for the CPU.
extern "C" RUEDA_API Error* rueda_jax_gpu_start(CallFrame* frame) {
  if (answer_metadata(frame)) {
    return nullptr;
  }
  void* stream = nullptr;
  if (Error* error = get_stream(frame, &stream); error != nullptr) {
    return error;
  }
  const Buffer& argument = *frame->arguments.buffers[0];
  const Buffer& result = *frame->results.buffers[0];
  const auto id = int_attribute(frame, "id");
  if (!id) {
    return make_error(frame, ErrorCode::kInternal, kBrokenProgram);
  }
  if (argument.data != result.data && bytes_of(argument) != 0 &&
      rueda_copy_on_stream(device_of(result, stream), stream, result.data, argument.data,
                           bytes_of(argument)) != RUEDA_OK) {
    return make_error(frame, ErrorCode::kInternal, rueda_last_error());
  }
  if (in_flight().has(*id)) {
    const std::string name = string_attribute(frame, "name").value_or("");
    in_flight().add(*id, {.name = name, .buffer = result.data, .handle = 0, .why = called_twice(name)});
    return nullptr;
  }
  bool is_understood = false;
  PendingOperation operation = start(frame, result, stream, &is_understood);
  if (!is_understood) {
    return make_error(frame, ErrorCode::kInternal, kBrokenProgram);
  }
  in_flight().add(*id, std::move(operation));
  return nullptr;
}

// (x…) -> y…: the i-th result is that of the start with number id + i. In place for allreduce and broadcast.
// step: as on the CPU; the mark is of when the host has launched the group.
extern "C" RUEDA_API Error* rueda_jax_gpu_done(CallFrame* frame) {
  if (answer_metadata(frame)) {
    return nullptr;
  }
  void* stream = nullptr;
  if (Error* error = get_stream(frame, &stream); error != nullptr) {
    return error;
  }
  const auto id = int_attribute(frame, "id");
  const int64_t count = frame->results.count;
  if (!id || frame->arguments.count != count) {
    return make_error(frame, ErrorCode::kInternal, kBrokenProgram);
  }
  std::string why;  // of the first failure; the others are waited for as well
  for (int64_t i = 0; i < count; ++i) {
    const Buffer& argument = *frame->arguments.buffers[i];
    const std::optional<PendingOperation> operation = in_flight().take(*id + i, argument.data);
    std::string mine = operation
                           ? finish(*operation, argument, *frame->results.buffers[i], stream)
                           : "rueda: XLA moved the memory of a collective between its start and its end; "
                             "please report the program and the version of jaxlib as a bug.";
    if (why.empty()) {
      why = std::move(mine);
    }
  }
  mark_step(frame, why);
  if (why.empty()) {
    return nullptr;
  }
  in_flight().abandon();
  return make_error(frame, ErrorCode::kInternal, why);
}

}  // namespace rueda::jax
