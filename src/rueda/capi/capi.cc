// The C ABI (include/rueda/rueda.h) over the engine. It validates and translates what the caller passes.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/limits.h"
#include "rueda/base/log.h"
#include "rueda/base/release.h"
#include "rueda/capi/life.h"
#include "rueda/capi/state.h"
#include "rueda/control/numbered_name.h"
#include "rueda/rueda.h"

namespace {

using rueda::Code;
using rueda::Rank;
using rueda::Status;
using rueda::runtime::Engine;
using rueda::runtime::Operation;
using rueda::runtime::Tensor;
namespace capi = rueda::capi;

static_assert(std::string_view(RUEDA_VERSION) == rueda::kRelease);
static_assert(static_cast<int>(Code::kStalled) == RUEDA_STALLED);
static_assert(static_cast<int>(rueda::DType::kBfloat16) == RUEDA_BFLOAT16);
static_assert(static_cast<int>(rueda::Collective::kReducescatter) == RUEDA_REDUCESCATTER);
static_assert(static_cast<int>(rueda::ReduceOp::kProduct) == RUEDA_PRODUCT);
static_assert(static_cast<int>(rueda::Wire::kInt8) == RUEDA_WIRE_INT8 - RUEDA_WIRE_FLOAT32);

constexpr int32_t kMaxGroupTensors = 1 << 20;
constexpr double kLongWait = 1e9;  // seconds; a longer deadline would overflow and means none

Status bad_request(const std::string& what) { return {Code::kInvalidArgument, "rueda_submit: " + what}; }

bool needs_input(const rueda_request& r) { return r.what != RUEDA_JOIN && r.what != RUEDA_BARRIER; }

Status check_shape(const rueda_request& r) {
  if (r.ndim < 0 || static_cast<size_t>(r.ndim) > rueda::kMaxDims || (r.ndim > 0 && r.shape == nullptr)) {
    return bad_request("ndim must be from 0 to 64, and a shape must be given.");
  }
  int64_t elements = 1;
  for (int32_t i = 0; i < r.ndim; ++i) {
    if (r.shape[i] < 0) return bad_request("dimension " + std::to_string(i) + " is negative.");
    if (__builtin_mul_overflow(elements, r.shape[i], &elements) || elements > (int64_t{1} << 56)) {
      return bad_request("the tensor is larger than the memory of any machine; check its shape.");
    }
  }
  if (elements > 0 && r.input == nullptr && needs_input(r)) return bad_request("input is null.");
  return Status::ok();
}

// The struct sizes of programs that were built before `priority`, before `ready`, before `numbered_at`,
// before `ready_is_stream`, before `wire`, and now.
constexpr std::array<uint32_t, 6> kRequestBytes{
    offsetof(rueda_request, priority),    offsetof(rueda_request, ready),
    offsetof(rueda_request, numbered_at), offsetof(rueda_request, ready_is_stream),
    offsetof(rueda_request, wire),        sizeof(rueda_request)};
static_assert(std::ranges::all_of(kRequestBytes,
                                  [](uint32_t bytes) { return bytes % alignof(rueda_request) == 0; }),
              "the new field lies in the padding of the older struct; give it a type of 8 bytes");

// The i-th element of an array whose elements have the size that the caller's header defines.
Status copy_request(const rueda_request* requests, int32_t i, rueda_request& copy) {
  const uint32_t bytes = requests->struct_size;
  if (std::ranges::find(kRequestBytes, bytes) == kRequestBytes.end())
    return bad_request("struct_size does not match this library.");
  std::memcpy(&copy, reinterpret_cast<const std::byte*>(requests) + static_cast<size_t>(i) * bytes, bytes);
  return copy.struct_size == bytes ? Status::ok() : bad_request("requests differ in struct_size.");
}

bool is_numbered_at(const rueda_request& r) {
  return r.numbered_at > 0 && r.numbered_at < static_cast<int64_t>(rueda::kMaxNameBytes) &&
         rueda::control::split_name(r.name, static_cast<uint16_t>(r.numbered_at)).has_value();
}

Status read_request(const rueda_request& r, Tensor& tensor) {
  if (r.what < RUEDA_ALLREDUCE || r.what > RUEDA_REDUCESCATTER) return bad_request("unknown collective.");
  if (r.op < RUEDA_AVERAGE || r.op > RUEDA_PRODUCT) {
    return {Code::kUnsupported, "Reduction op type not supported."};
  }
  if (r.name == nullptr || r.name[0] == '\0') return bad_request("every operation needs a name.");
  if (std::strlen(r.name) > rueda::kMaxNameBytes) return bad_request("the name is longer than 4096 bytes.");
  if (r.dtype < RUEDA_UINT8 || r.dtype > RUEDA_BFLOAT16)
    return bad_request("tensor " + std::string(r.name) + " has a type that no collective accepts (dtype " +
                       std::to_string(r.dtype) + ").");
  if (Status s = check_shape(r); !s.is_ok()) return s;
  if (r.memory < RUEDA_HOST_MEMORY || r.memory > RUEDA_DEVICE_MEMORY)
    return bad_request("unknown kind of memory (" + std::to_string(r.memory) + ").");
  if (r.memory == RUEDA_DEVICE_MEMORY && r.device < 0)
    return bad_request("tensor " + std::string(r.name) + " is in device memory, but its device is missing.");
  if (r.numbered_at != 0 && !is_numbered_at(r))
    return bad_request("the name of tensor " + std::string(r.name) +
                       " has no number of at most 18 digits at byte " + std::to_string(r.numbered_at) +
                       " (numbered_at).");
  const int64_t wire = r.wire & ~int64_t{RUEDA_WIRE_WITHOUT_FEEDBACK};
  if (wire < RUEDA_WIRE_DEFAULT || wire > RUEDA_WIRE_INT8)
    return bad_request("unknown wire type (" + std::to_string(r.wire) + ").");
  if (r.split_count < 0 || r.split_count > rueda::kMaxRanks)
    return bad_request("split_count is out of range.");
  rueda::control::TensorRequest& request = tensor.request;
  request.what = static_cast<rueda::Collective>(r.what);
  request.dtype = static_cast<rueda::DType>(r.dtype);
  request.op = static_cast<rueda::ReduceOp>(r.op);
  request.name = r.name;
  request.numbered_at = static_cast<uint16_t>(r.numbered_at);
  request.process_set = r.process_set;
  request.shape.assign(r.shape, r.shape + r.ndim);
  request.root = r.root_rank;
  request.prescale = r.prescale;
  request.postscale = r.postscale;
  request.device = r.device;
  if (r.splits != nullptr) request.splits.assign(r.splits, r.splits + r.split_count);
  request.tag = r.tag;
  request.priority = r.priority;
  request.memory = static_cast<rueda::MemoryKind>(r.memory);
  tensor.takes_wire_setting = wire == RUEDA_WIRE_DEFAULT;
  tensor.has_feedback = wire == r.wire;
  if (!tensor.takes_wire_setting) request.wire = static_cast<rueda::Wire>(wire - RUEDA_WIRE_FLOAT32);
  tensor.memory = {.kind = request.memory, .device = r.device};
  tensor.ready_stream.is_given = r.ready_is_stream != 0 && r.memory == RUEDA_DEVICE_MEMORY;
  if (tensor.ready_stream.is_given)
    tensor.ready_stream.handle = r.ready;
  else
    tensor.memory.ready = r.ready;
  tensor.input = r.input;
  tensor.output = r.output;
  return Status::ok();
}

// Negative or very long: none.
std::optional<rueda::Deadline> deadline_after(double timeout_s) {
  if (!(timeout_s >= 0 && timeout_s < kLongWait)) return std::nullopt;
  return rueda::Deadline::after(rueda::nanos(timeout_s, rueda::kSecond));
}

// The tensor of an operation that has succeeded. Otherwise sets the error and returns null.
Tensor* result_tensor(const std::shared_ptr<Engine>& engine, int64_t handle, int32_t index,
                      std::shared_ptr<Operation>& operation) {
  operation = engine ? engine->operations().find(handle) : nullptr;
  if (!operation || !operation->is_done || !operation->outcome().is_ok() || index < 0 ||
      static_cast<size_t>(index) >= operation->tensors.size()) {
    capi::fail({Code::kInvalidArgument, "Handle " + std::to_string(handle) + " has no result " +
                                            std::to_string(index) +
                                            ": wait for it first, and check that it succeeded."});
    return nullptr;
  }
  return &operation->tensors[static_cast<size_t>(index)];
}

Status dynamic_only(const Engine& engine, const std::string& verb) {
  if (engine.session().config.dynamic_process_sets) return Status::ok();
  return {Code::kInvalidArgument, "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow " + verb +
                                      " process sets after Horovod initialization."};
}

int submit(const rueda_request* requests, int32_t count, int64_t* handle, bool will_wait) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  if (requests == nullptr || handle == nullptr || count < 1 || count > kMaxGroupTensors) {
    return capi::fail(bad_request("requests and handle must be given, and count must be from 1 to 1048576."));
  }
  std::vector<Tensor> tensors(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    Tensor& tensor = tensors[static_cast<size_t>(i)];
    rueda_request request{};
    if (const Status s = copy_request(requests, i, request); !s.is_ok()) return capi::fail(s);
    if (const Status s = read_request(request, tensor); !s.is_ok()) return capi::fail(s);
    tensor.request.group_index = i;
    tensor.request.group_size = count;
    if (count > 1) tensor.request.group_name = tensors.front().request.name;
  }
  const rueda::Result<int64_t> submitted = engine->submissions().submit(std::move(tensors), will_wait);
  if (!submitted.is_ok()) return capi::fail(submitted.status());
  *handle = submitted.value();
  return RUEDA_OK;
}

}  // namespace

extern "C" {

int rueda_init(const rueda_init_options* options) {
  rueda::runtime::InitOptions parsed;
  if (options != nullptr) {
    constexpr size_t kWithoutCommunicator = offsetof(rueda_init_options, mpi_communicator);
    constexpr size_t kWithoutInterruption = offsetof(rueda_init_options, is_interrupted);
    constexpr size_t kWithoutOwnSets = offsetof(rueda_init_options, set_is_own);
    const bool has_own_sets = options->struct_size == sizeof(rueda_init_options);
    const bool has_interruption = has_own_sets || options->struct_size == kWithoutOwnSets;
    const bool has_communicator = has_interruption || options->struct_size == kWithoutInterruption;
    if (!has_communicator && options->struct_size != kWithoutCommunicator) {
      return capi::fail({Code::kInvalidArgument, "rueda_init: struct_size does not match this library."});
    }
    if (options->set_count < 0 || (options->set_count > 0 && options->set_sizes == nullptr))
      return capi::fail({Code::kInvalidArgument, "rueda_init: set_count and set_sizes do not fit together."});
    const int32_t* next = options->set_ranks;
    for (int32_t i = 0; i < options->set_count; ++i) {
      if (options->set_sizes[i] < 0 || options->set_sizes[i] > rueda::kMaxRanks) {
        return capi::fail(
            {Code::kInvalidArgument, "rueda_init: set_sizes[" + std::to_string(i) + "] is out of range."});
      }
      if (options->set_sizes[i] > 0 && next == nullptr)
        return capi::fail({Code::kInvalidArgument, "rueda_init: set_ranks is null."});
      parsed.process_sets.emplace_back(next, next + options->set_sizes[i]);
      next += options->set_sizes[i];
      if (has_own_sets && options->set_is_own != nullptr && options->set_is_own[i] != 0)
        parsed.own_sets.push_back(i);
    }
    parsed.expected_size = options->expected_size;
    if (has_communicator && options->mpi_communicator != 0) parsed.communicator = options->mpi_communicator;
    if (has_interruption && options->is_interrupted != nullptr)
      parsed.is_interrupted = [ask = options->is_interrupted, is_set = std::make_shared<bool>(false)] {
        return *is_set = *is_set || ask() != 0;
      };
  }
  const Status status = capi::init(std::move(parsed));
  return status.is_ok() ? RUEDA_OK : capi::fail(status);
}

void rueda_shutdown(void) { capi::shutdown(); }

int rueda_health(void) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  const Status status = engine->health();
  return status.is_ok() ? RUEDA_OK : capi::fail(status);
}

const char* rueda_version(void) { return RUEDA_VERSION; }
const char* rueda_last_error(void) { return capi::last_error(); }
const char* rueda_describe(void) { return capi::keep_text(capi::describe_json(capi::engine().get())); }

int rueda_add_process_set(const int32_t* ranks, int32_t count, int32_t* id) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  if (const Status s = dynamic_only(*engine, "adding"); !s.is_ok()) return capi::fail(s);
  if (count < 0 || count > rueda::kMaxRanks) {
    return capi::fail({Code::kInvalidArgument, "rueda_add_process_set: count is out of range."});
  }
  if (id == nullptr || (ranks == nullptr && count > 0)) {
    return capi::fail({Code::kInvalidArgument, "rueda_add_process_set: ranks and id must not be null."});
  }
  const auto added = engine->add_process_set(std::vector<Rank>(ranks, ranks + count));
  if (!added.is_ok()) return capi::fail(added.status());
  *id = added.value();
  return RUEDA_OK;
}

int rueda_remove_process_set(int32_t id) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  if (const Status s = dynamic_only(*engine, "removing"); !s.is_ok()) return capi::fail(s);
  const Status status = engine->remove_process_set(id);
  return status.is_ok() ? RUEDA_OK : capi::fail(status);
}

int rueda_submit(const rueda_request* requests, int32_t count, int64_t* handle) {
  return submit(requests, count, handle, false);
}

int rueda_submit_for_wait(const rueda_request* requests, int32_t count, int64_t* handle) {
  return submit(requests, count, handle, true);
}

int rueda_prepare(const rueda_request* request, int64_t* prepared) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  if (request == nullptr || prepared == nullptr)
    return capi::fail({Code::kInvalidArgument, "rueda_prepare: request and prepared must be given."});
  rueda_request copy{};
  if (const Status s = copy_request(request, 0, copy); !s.is_ok()) return capi::fail(s);
  if (copy.what == RUEDA_JOIN)
    return capi::fail({Code::kInvalidArgument, "rueda_prepare: a join cannot be prepared; submit it."});
  copy.input = copy.output = copy.ready = &copy;  // any address; starts bring their own
  Tensor tensor;
  if (const Status s = read_request(copy, tensor); !s.is_ok()) return capi::fail(s);
  tensor.input = tensor.output = tensor.memory.ready = tensor.ready_stream.handle = nullptr;
  tensor.request.group_size = 1;
  const rueda::Result<int64_t> number = engine->submissions().prepare(std::move(tensor));
  if (!number.is_ok()) return capi::fail(number.status());
  *prepared = number.value();
  return RUEDA_OK;
}

int rueda_start(rueda_start_item* items, int32_t count) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  if (items == nullptr || count < 1)
    return capi::fail(
        {Code::kInvalidArgument, "rueda_start: items must be given, and count must be positive."});
  for (int32_t i = 0; i < count; ++i) items[i].handle = 0;
  Status refused;
  int32_t started = 0;
  while (started < count) {
    rueda_start_item& item = items[started];
    const rueda::Result<int64_t> handle = engine->submissions().start(
        {.number = item.prepared, .input = item.input, .output = item.output, .ready = item.ready});
    if (!handle.is_ok()) {
      refused = handle.status();
      break;
    }
    item.handle = handle.value();
    ++started;
  }
  if (started > 0) engine->submissions().wake();  // once for all
  return refused.is_ok() ? RUEDA_OK : capi::fail(refused);
}

int rueda_rescale_residuals(double factor) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  if (!(factor > 0) || !std::isfinite(factor))
    return capi::fail(
        {Code::kInvalidArgument, "rueda_rescale_residuals: factor must be positive and finite, but it is " +
                                     std::to_string(factor) + "."});
  if (!engine->submissions().residuals().rescale(factor))
    return capi::fail({Code::kInvalidArgument,
                       "rueda_rescale_residuals: factor " + std::to_string(factor) +
                           " is refused, because all factors since init together must lie between 1e-50 and "
                           "1e50; give new scale / old scale."});
  return RUEDA_OK;
}

void rueda_forget(int64_t prepared) {
  if (const std::shared_ptr<Engine> engine = capi::engine()) engine->operations().forget(prepared);
}

int rueda_poll(int64_t handle) {
  const std::shared_ptr<Engine> engine = capi::engine();
  return engine ? engine->operations().poll(handle) : -1;
}

int rueda_wait(int64_t handle, double timeout_s) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  const Status status = engine->wait(handle, deadline_after(timeout_s));
  return status.is_ok() ? RUEDA_OK : capi::fail(status);
}

int rueda_wait_on_stream(int64_t handle, void* stream, double timeout_s) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  const Status status = engine->wait_on_stream(handle, stream, deadline_after(timeout_s));
  return status.is_ok() ? RUEDA_OK : capi::fail(status);
}

int rueda_wait_all_on_stream(const int64_t* handles, int32_t count, void* stream, double timeout_s,
                             int32_t* ended) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (ended != nullptr) *ended = 0;
  if (!engine) return capi::fail_not_initialized();
  if (handles == nullptr || ended == nullptr || count < 0)
    return capi::fail({Code::kInvalidArgument,
                       "rueda_wait_all_on_stream: handles and ended must be given, and count must not be "
                       "negative."});
  size_t passed = 0;
  const Status status = engine->wait_all_on_stream(std::span(handles, static_cast<size_t>(count)), stream,
                                                   deadline_after(timeout_s), passed);
  *ended = static_cast<int32_t>(passed);
  return status.is_ok() ? RUEDA_OK : capi::fail(status);
}

int rueda_on_done(int64_t handle, void (*done)(void* argument), void* argument) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  if (done == nullptr) return capi::fail(bad_request("done must be given."));
  const Status status = engine->operations().on_done(handle, {.function = done, .argument = argument});
  return status.is_ok() ? RUEDA_OK : capi::fail(status);
}

int rueda_result(int64_t handle, int32_t index, rueda_result_info* info) {
  if (info == nullptr || info->struct_size != sizeof(rueda_result_info)) {
    return capi::fail({Code::kInvalidArgument, "rueda_result: struct_size does not match this library."});
  }
  const std::shared_ptr<Engine> engine = capi::engine();  // outlives the operation
  std::shared_ptr<Operation> operation;
  const Tensor* tensor = result_tensor(engine, handle, index, operation);
  if (tensor == nullptr) return RUEDA_INVALID_ARGUMENT;
  int64_t elements = 1;
  for (const int64_t dim : tensor->result_shape) elements *= dim;
  info->ndim = static_cast<int32_t>(tensor->result_shape.size());
  info->shape = tensor->result_shape.data();
  info->data = tensor->output;
  info->bytes = static_cast<uint64_t>(elements) * rueda::size_of(tensor->request.dtype);
  info->received_splits = tensor->received_splits.data();
  info->split_count = static_cast<int32_t>(tensor->received_splits.size());
  info->last_joined_rank = operation->last_joined;
  info->tag = operation->tag;
  return RUEDA_OK;
}

void* rueda_detach(int64_t handle, int32_t index) {
  const std::shared_ptr<Engine> engine = capi::engine();  // outlives the operation
  std::shared_ptr<Operation> operation;
  Tensor* tensor = result_tensor(engine, handle, index, operation);
  if (tensor == nullptr || tensor->allocated == nullptr) return nullptr;
  if (tensor->allocated.get_deleter().device == nullptr) return tensor->allocated.release();
  void* const data = tensor->allocated.get();
  capi::keep_detached(std::move(tensor->allocated));
  return data;
}

void rueda_free(void* data) {
  if (data != nullptr && !capi::release_detached(data)) std::free(data);
}

void rueda_release(int64_t handle) {
  if (const std::shared_ptr<Engine> engine = capi::engine()) engine->operations().release(handle);
}

void rueda_release_all(const int64_t* handles, int32_t count) {
  if (handles == nullptr || count <= 0) return;
  if (const std::shared_ptr<Engine> engine = capi::engine())
    engine->operations().release(std::span(handles, static_cast<size_t>(count)));
}

const char* rueda_error(int64_t handle) {
  const std::shared_ptr<Engine> engine = capi::engine();
  const std::shared_ptr<Operation> operation = engine ? engine->operations().find(handle) : nullptr;
  return capi::keep_text(operation && operation->is_done ? operation->outcome().why : std::string());
}

void* rueda_alloc(size_t bytes) {
  const rueda::Result<std::shared_ptr<rueda::memory::Arena>> arena = capi::arena();
  if (!arena.is_ok()) return capi::fail(arena.status()), nullptr;
  void* const buffer = arena.value()->allocate(bytes);
  if (buffer == nullptr) {
    capi::fail({Code::kUnavailable, "there is no room for a shared buffer of " + std::to_string(bytes) +
                                        " bytes: " + std::to_string(arena.value()->used_bytes()) + " of " +
                                        std::to_string(arena.value()->memory().bytes()) +
                                        " are used; release shared buffers or raise RUEDA_ARENA_BYTES."});
  }
  return buffer;
}

void rueda_release_memory(void* buffer) {
  if (buffer != nullptr && !capi::release_shared_buffer(buffer))
    RUEDA_LOG(kError, "rueda_release_memory: the address is not that of a shared buffer.");
}

int rueda_is_shared_buffer(const void* address) { return capi::is_shared_buffer(address) ? 1 : 0; }
void rueda_trim_memory(void) { capi::trim_shared_buffers(); }

void rueda_log(int level, const char* text) {
  const auto known =
      std::clamp(static_cast<rueda::LogLevel>(level), rueda::LogLevel::kTrace, rueda::LogLevel::kFatal);
  if (text != nullptr && known >= rueda::log_level()) rueda::log_record(known, __FILE__, __LINE__, text);
}

}  // extern "C"
