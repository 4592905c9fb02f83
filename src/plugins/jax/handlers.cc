// The calls that XLA makes for a group of collectives: one start for each tensor as soon as it is ready, and
// one done for the whole group. The program computes meanwhile. Ranks may make the calls in any order,
// because the engine matches operations by name. Neither call blocks before every start of its group has been
// made, so no order of execution can make ranks wait for each other forever.
//
// A failed call ends the program. XLA would then free buffers that the engine still uses for other groups,
// and other ranks would wait for groups that are never started here. Therefore a start never fails, and among
// the groups of one block of the program only the last done fails. begin has counted the groups.

#include <cstring>
#include <string>
#include <utility>

#include "plugins/jax/collective.h"
#include "plugins/jax/frame.h"
#include "plugins/jax/in_flight.h"
#include "plugins/jax/runs.h"
#include "rueda/rueda.h"

namespace rueda::jax {
namespace {

// Waits for one operation and delivers its result. Returns why it failed, or an empty text.
std::string finish(const PendingOperation& operation, const Buffer& argument, const Buffer& result) {
  if (operation.handle == 0) {
    return operation.why;
  }
  std::string why;
  // This wait ends although it has no limit: the engine ends every operation, at the latest when a
  // peer is lost.
  if (rueda_wait(operation.handle, -1.0) != RUEDA_OK) {
    why = rueda_last_error();
  } else if (argument.data != result.data) {
    rueda_result_info info{};
    why = find_result(operation, result, &info);
    if (why.empty() && info.bytes != 0 && info.data != result.data) {
      std::memcpy(result.data, info.data, info.bytes);
    }
  }
  rueda_release(operation.handle);
  return why;
}

}  // namespace

// () -> int32 []: the number of this run of a block. Attribute: groups, the number of done calls in a run.
extern "C" RUEDA_API Error* rueda_jax_begin(CallFrame* frame) {
  if (answer_metadata(frame)) {
    return nullptr;
  }
  const auto groups = int_attribute(frame, "groups");
  if (!groups) {
    return make_error(frame, ErrorCode::kInternal, kBrokenProgram);
  }
  const int32_t run = runs().begin(*groups);
  std::memcpy(frame->results.buffers[0]->data, &run, sizeof run);
  return nullptr;
}

// (x) -> x, in place. Attributes: id, name, what, op, process_set, root_rank, prescale, postscale, wire.
extern "C" RUEDA_API Error* rueda_jax_start(CallFrame* frame) {
  if (answer_metadata(frame)) {
    return nullptr;
  }
  const Buffer& argument = *frame->arguments.buffers[0];
  const Buffer& result = *frame->results.buffers[0];
  if (argument.data != result.data) {
    std::memcpy(result.data, argument.data, bytes_of(argument));
  }
  const auto id = int_attribute(frame, "id");
  bool is_understood = false;
  if (id && in_flight().has(*id)) {
    const std::string name = string_attribute(frame, "name").value_or("");
    in_flight().add(*id, {.name = name, .buffer = result.data, .handle = 0, .why = called_twice(name)});
    return nullptr;
  }
  PendingOperation operation =
      id ? submit(frame, result, BufferLocation{}, &is_understood) : PendingOperation{};
  if (!is_understood) {
    return make_error(frame, ErrorCode::kInternal, kBrokenProgram);
  }
  in_flight().add(*id, std::move(operation));
  return nullptr;
}

// (x…, run) -> y…: the i-th result is that of the start with number id + i, or 0 if any has failed. In place
// for allreduce and broadcast. Attributes: id, and step: what of the program ends its step here, or 0.
extern "C" RUEDA_API Error* rueda_jax_done(CallFrame* frame) {
  if (answer_metadata(frame)) {
    return nullptr;
  }
  const auto id = int_attribute(frame, "id");
  const int64_t count = frame->results.count;
  if (!id || frame->arguments.count != count + 1) {
    return make_error(frame, ErrorCode::kInternal, kBrokenProgram);
  }
  std::string why;  // of the first failure. All are waited for, because XLA owns the buffers afterwards
  for (int64_t i = 0; i < count; ++i) {
    const Buffer& argument = *frame->arguments.buffers[i];
    const std::optional<PendingOperation> operation = in_flight().take(*id + i, argument.data);
    std::string mine = operation
                           ? finish(*operation, argument, *frame->results.buffers[i])
                           : "rueda: XLA moved the memory of a collective between its start and its end; "
                             "please report the program and the version of jaxlib as a bug.";
    if (why.empty()) {
      why = std::move(mine);
    }
  }
  if (!why.empty()) {  // so that the rest of the program has the same numbers on every rank
    for (int64_t i = 0; i < count; ++i) {
      const Buffer& result = *frame->results.buffers[i];
      std::memset(result.data, 0, bytes_of(result));
    }
  }
  mark_step(frame, why);
  int32_t run = 0;
  std::memcpy(&run, frame->arguments.buffers[count]->data, sizeof run);
  why = runs().end_group(run, std::move(why));
  if (why.empty()) {
    return nullptr;
  }
  in_flight().wait();  // operations of other blocks still use the memory of the program
  return make_error(frame, ErrorCode::kInternal, why);
}

}  // namespace rueda::jax
