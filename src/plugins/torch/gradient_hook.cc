#include "plugins/torch/gradient_hook.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "plugins/torch/attribute_names.h"
#include "rueda/rueda.h"

namespace rueda::torch {
namespace {

constexpr double kWaitSlice = 0.25;  // seconds between two looks for signals, as operations.WAIT_SLICE_S
constexpr const char* kCapsuleName = "rueda.gradient_hook";

HookParts g_parts;
AttributeNames g_names;
const DlpackExchange* g_exchange = nullptr;
PyObject* g_zero = nullptr;

Ref get(PyObject* object, PyObject* name) { return Ref(g_python.get_attr(object, name)); }
bool set(PyObject* object, PyObject* name, PyObject* value) {
  return g_python.set_attr(object, name, value) == 0;
}

// Clears the exception that a failed attempt has left; what it could not do, the Python code will do or
// explain.
std::nullopt_t unusual() {
  g_python.clear_error();
  return std::nullopt;
}

std::optional<int64_t> read_int(PyObject* object, PyObject* name) {
  const Ref value = get(object, name);
  if (!value) return unusual();
  const long long number = g_python.read_int(value.get());
  if (number == -1 && g_python.error() != nullptr) return unusual();
  return number;
}

bool is(PyObject* object, PyObject* name, PyObject* value) {
  const Ref found = get(object, name);
  if (!found) unusual();
  return found.get() == value;
}

// The stream of a GPU on which this thread enqueues.
std::optional<void*> current_stream(int64_t device) {
  void* stream = nullptr;
  const auto type = static_cast<int32_t>(DlpackDevice::kCuda);
  if (g_exchange->current_stream(type, static_cast<int32_t>(device), &stream) != 0) return unusual();
  return stream;
}

// The request's type, as DLPack says it.
bool has_type(const DlpackTensor& tensor, int32_t dtype) {
  struct Type {
    DlpackType code;
    uint8_t bits;
  };
  static constexpr Type kTypes[] = {
      {DlpackType::kUint, 8},   {DlpackType::kInt, 8},  {DlpackType::kUint, 16},  {DlpackType::kInt, 16},
      {DlpackType::kInt, 32},   {DlpackType::kInt, 64}, {DlpackType::kFloat, 16}, {DlpackType::kFloat, 32},
      {DlpackType::kFloat, 64}, {DlpackType::kBool, 8}, {DlpackType::kBfloat, 16}};
  static_assert(RUEDA_BFLOAT16 + 1 == sizeof(kTypes) / sizeof(Type));
  if (dtype < 0 || dtype > RUEDA_BFLOAT16) return false;
  return tensor.code == kTypes[dtype].code && tensor.bits == kTypes[dtype].bits && tensor.lanes == 1;
}

// Whether memory has the elements in the order of the request's shape, and there are some. Requests for
// tensors with the channels last have one more dimension, as tensors.in_order_of() says it.
bool has_order(const DlpackTensor& tensor, const rueda_request& request) {
  const int32_t last = tensor.ndim - 1;
  const bool has_channels_last = request.ndim == tensor.ndim + 1 && request.shape[tensor.ndim] == 1 &&
                                 (tensor.ndim == 4 || tensor.ndim == 5) && tensor.strides != nullptr;
  if (!has_channels_last && request.ndim != tensor.ndim) return false;
  int64_t stride = 1;
  for (int32_t place = last; place >= 0; --place) {
    const int32_t axis = !has_channels_last || place == 0 ? place : place == last ? 1 : place + 1;
    const int64_t rows = tensor.shape[axis];
    if (rows != request.shape[place] || rows == 0) return false;
    if (rows != 1 && tensor.strides != nullptr && tensor.strides[axis] != stride) return false;
    stride *= rows;
  }
  return true;
}

// Whether the tensor is dense, not empty, and of the type, shape and device of the request.
bool fits(const DlpackTensor& tensor, const rueda_request& request) {
  const bool is_on_host = tensor.device_type == DlpackDevice::kCpu;
  if (!is_on_host && tensor.device_type != DlpackDevice::kCuda) return false;
  if (request.device != (is_on_host ? -1 : tensor.device)) return false;
  return has_type(tensor, request.dtype) && has_order(tensor, request) && tensor.data != nullptr;
}

class Hook {
 public:
  Hook(PyObject* slot, PyObject* activity, PyObject* in_general)
      : slot_(Ref::of(slot)), activity_(Ref::of(activity)), in_general_(Ref::of(in_general)) {}
  ~Hook() { forget(); }

  PyObject* run(PyObject* parameter) {
    const Ref gradient(g_python.call(slot_.get(), nullptr));
    if (!gradient) return nullptr;
    if (gradient.is_none()) return Ref::of(g_python.none).release();
    const std::optional<bool> is_started = start(gradient.get(), parameter);
    if (!is_started) return g_python.call(in_general_.get(), parameter, nullptr);
    return *is_started ? Ref::of(g_python.none).release() : nullptr;
  }

 private:
  // Empty: not usual, and nothing has started. False: an exception is set.
  std::optional<bool> start(PyObject* gradient, PyObject* parameter) {
    const int64_t epoch = rueda_epoch();
    if (read_int(gradient, g_names.passes_left) != 1 || read_int(activity_.get(), g_names.epoch) != epoch)
      return std::nullopt;
    if (!is(gradient, g_names.is_outstanding, g_python.false_)) return std::nullopt;
    if (g_python.dict_size(g_parts.writing_back) != 0) return std::nullopt;
    const Ref prepared = get(gradient, g_names.prepared);
    if (!prepared) return unusual();
    if (prepared.is_none() || !know(prepared.get())) return std::nullopt;
    if (!is_registered(epoch) || !is_prepared(epoch)) return std::nullopt;

    const Ref grad = get(parameter, g_names.grad);
    if (!grad) return unusual();
    const std::optional<void*> address = address_of(grad.get());
    if (!address) return std::nullopt;
    void* on = nullptr;  // in the order of this stream the gradient becomes ready
    if (stream_ && !take_stream(on)) return std::nullopt;
    rueda_start_item item{number_, *address, *address, on, 0};
    if (rueda_start(&item, 1) != RUEDA_OK) {
      forget();             // its process set may have been removed and made again
      return std::nullopt;  // the general way will say why
    }
    return note_started(gradient, prepared.get(), grad.get(), item.handle);
  }

  // Whether the engine of this epoch knows the operation; it is told the first time.
  bool is_prepared(int64_t epoch) {
    if (number_ != 0 && epoch_ == epoch && set_ == request_->process_set) return true;
    forget();
    epoch_ = epoch;
    set_ = request_->process_set;
    return rueda_prepare(request_, &number_) == RUEDA_OK;
  }

  // Reads the request of an operation, unless it is the one of the last step. False: it is not usual.
  bool know(PyObject* prepared) {
    if (prepared == prepared_.get()) return true;
    Ref recurring = get(prepared, g_names.recurring);
    if (!recurring) return unusual(), false;
    const std::optional<int64_t> address = read_int(recurring.get(), g_names.address);
    const std::optional<int64_t> count = read_int(recurring.get(), g_names.count);
    Ref process_set = get(recurring.get(), g_names.process_set);
    Ref stream = get(prepared, g_names.stream);
    if (!process_set || !stream) return unusual(), false;
    if (!address || count != 1) return false;  // count: it travels in parts
    forget();
    request_ = reinterpret_cast<rueda_request*>(*address);
    stream_ = stream.is_none() ? Ref() : std::move(stream);
    process_set_ = std::move(process_set);
    recurring_ = std::move(recurring);
    prepared_ = Ref::of(prepared);
    return true;
  }

  void forget() { rueda_forget(std::exchange(number_, 0)); }

  // As Stream.move: the current stream becomes that of the operation.
  bool take_stream(void*& on) const {
    const std::optional<void*> now = current_stream(request_->device);
    if (!now) return false;
    on = *now;
    const Ref handle(g_python.make_int(static_cast<int64_t>(reinterpret_cast<intptr_t>(on))));
    if (handle && set(stream_.get(), g_names.handle, handle.get())) return true;
    return unusual(), false;
  }

  // Whether the process set has, in this epoch, the number that is in the request.
  bool is_registered(int64_t epoch) const {
    return read_int(recurring_.get(), g_names.checked_in) == epoch &&
           read_int(process_set_.get(), g_names.set_id) == request_->process_set;
  }

  std::optional<void*> address_of(PyObject* grad) const {
    const Ref type(g_python.type_of(grad));
    if (type.get() != g_parts.tensor_type) return std::nullopt;
    DlpackTensor tensor;
    if (g_exchange->to_tensor(grad, &tensor) != 0) return unusual();  // sparse, or in no memory at all
    if (!fits(tensor, *request_)) return std::nullopt;
    const Ref is_neg(g_python.call_method(grad, g_names.is_neg, nullptr));
    if (!is_neg) return unusual();
    if (is_neg.get() != g_python.false_) return std::nullopt;
    return static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  }

  bool note_started(PyObject* gradient, PyObject* prepared, PyObject* grad, int64_t handle) const {
    const AttributeNames& n = g_names;
    const Ref number(g_python.make_int(handle));
    return number && set(prepared, n.engine_handle, number.get()) && set(prepared, n.borrowed, grad) &&
           g_python.dict_set(g_parts.open_operations, number.get(), prepared) == 0 &&
           set(gradient, n.reduction, prepared) && set(gradient, n.passes_left, g_zero) &&
           set(gradient, n.is_ready, g_python.true_) && set(gradient, n.is_settled, g_python.false_) &&
           set(gradient, n.sparse_dim, g_python.none) && set(activity_.get(), n.is_possible, g_python.true_);
  }

  Ref slot_, activity_, in_general_;
  Ref prepared_;                          // that of the last step; what follows belongs to it
  Ref recurring_, stream_, process_set_;  // no stream: memory of the host
  rueda_request* request_ = nullptr;      // of recurring_
  int64_t number_ = 0, epoch_ = -1;       // under which the request is prepared, and where
  int32_t set_ = 0;                       // the process set that it names there
};

PyObject* run_hook(PyObject* self, PyObject* parameter) {
  auto* const hook = static_cast<Hook*>(g_python.capsule_pointer(self, kCapsuleName));
  return hook == nullptr ? nullptr : hook->run(parameter);
}

void destroy_hook(PyObject* capsule) {
  delete static_cast<Hook*>(g_python.capsule_pointer(capsule, kCapsuleName));
}

// One gradient under way.
struct Started {
  Ref gradient, prepared, number;
  int64_t handle = 0;
  bool is_on_device = false;
  void* streams[2] = {};  // the one of the operation, and the current one
};

// Those of a gradient on a GPU. False: something is not usual.
bool find_streams(Started& one) {
  const Ref stream = get(one.prepared.get(), g_names.stream);
  if (!stream) return unusual(), false;
  if (stream.is_none()) return true;
  const std::optional<int64_t> device = read_int(stream.get(), g_names.device);
  const std::optional<int64_t> handle = read_int(stream.get(), g_names.handle);
  if (!device || !handle) return false;
  const std::optional<void*> now = current_stream(*device);
  if (!now) return false;
  one.is_on_device = true;
  one.streams[0] = reinterpret_cast<void*>(*handle);
  one.streams[1] = *now;
  return true;
}

bool are_awaited_alike(const Started& one, const Started& other) {
  return one.is_on_device == other.is_on_device && one.streams[0] == other.streams[0] &&
         one.streams[1] == other.streams[1];
}

// Waits for one slice for those from `ended` on that are awaited alike, and counts those that have ended. In
// memory of a device, the host waits for the launch, and both streams for the end.
int wait_for_next(const std::vector<Started>& all, const std::vector<int64_t>& handles, size_t& ended) {
  const Started& first = all[ended];
  size_t end = ended + 1;
  while (end < all.size() && are_awaited_alike(first, all[end])) ++end;
  const auto count = static_cast<int32_t>(end - ended);
  int32_t passed = 0, again = 0;
  int status = rueda_wait_all_on_stream(&handles[ended], count, first.streams[0], kWaitSlice, &passed);
  if (first.streams[0] != first.streams[1] && passed > 0) {
    const int other = rueda_wait_all_on_stream(&handles[ended], passed, first.streams[1], kWaitSlice, &again);
    passed = again;
    if (other != RUEDA_OK) status = other;
  }
  ended += static_cast<size_t>(passed);
  return status;
}

// Empty: something is not usual.
std::optional<Started> find_started(PyObject* gradient) {
  Started one;
  one.gradient = Ref::of(gradient);
  one.prepared = get(gradient, g_names.reduction);
  if (!one.prepared) return unusual();
  if (one.prepared.is_none() || !is(gradient, g_names.prepared, one.prepared.get())) return std::nullopt;
  if (!find_streams(one)) return std::nullopt;
  const Ref parameter = get(gradient, g_names.parameter);
  if (!parameter) return unusual();
  if (is(parameter.get(), g_names.grad, g_python.none)) return std::nullopt;  // the program has taken it away
  one.number = get(one.prepared.get(), g_names.engine_handle);
  if (!one.number) return unusual();
  one.handle = g_python.read_int(one.number.get());
  if (g_python.dict_get(g_parts.open_operations, one.number.get()) != one.prepared.get()) return unusual();
  return one;
}

// As await_gradients.
int wait_for_all(const std::vector<Started>& all, const std::vector<int64_t>& handles) {
  size_t ended = 0;
  while (ended < all.size()) {
    void* const thread = g_python.release_lock();
    int status = RUEDA_OK;
    while (ended < all.size() && (status = wait_for_next(all, handles, ended)) == RUEDA_OK) {
    }
    g_python.take_lock(thread);
    if (status != RUEDA_OK && status != RUEDA_TIMEOUT) return 0;
    if (g_python.run_signal_handlers() != 0) return -1;
  }
  return 1;
}

// settled: takes its handle, which is to be released.
bool note_settled(const Started& one, PyObject* passes, std::vector<int64_t>& settled) {
  const AttributeNames& n = g_names;
  const bool is_noted = set(one.prepared.get(), n.borrowed, g_python.none) &&
                        set(one.gradient.get(), n.reduction, g_python.none) &&
                        set(one.gradient.get(), n.passes_left, passes) &&
                        set(one.gradient.get(), n.is_ready, g_python.false_) &&
                        set(one.gradient.get(), n.is_settled, g_python.false_);
  if (g_python.dict_delete(g_parts.open_operations, one.number.get()) != 0) {
    unusual();  // a handler of a signal has shut the engine down
  } else {
    settled.push_back(one.handle);
  }
  return is_noted;
}

}  // namespace

std::string install_hooks(const HookParts& parts) {
  if (std::string why = find_python(); !why.empty()) return why;
  const auto* exchange =
      static_cast<const DlpackExchange*>(g_python.capsule_pointer(parts.exchange, kDlpackExchangeName));
  if (exchange == nullptr) unusual();
  while (exchange != nullptr && exchange->major > kDlpackMajor) exchange = exchange->older;
  if (exchange == nullptr || exchange->major != kDlpackMajor || exchange->to_tensor == nullptr ||
      exchange->current_stream == nullptr)
    return "this torch has another table of DLPack's functions than is known";
  g_zero = g_python.make_int(0);
  if (g_zero == nullptr || !intern_names(g_names)) return unusual(), "there is no memory";
  g_exchange = exchange;
  g_parts = parts;
  for (PyObject* part : {parts.tensor_type, parts.exchange, parts.open_operations, parts.writing_back})
    g_python.incref(part);
  return "";
}

PyObject* make_hook(PyObject* slot, PyObject* activity, PyObject* in_general) {
  static PyMethodDef method{
      .name = "gradient_hook", .function = run_hook, .flags = kOneArgument, .doc = nullptr};
  auto* const hook = new Hook(slot, activity, in_general);
  const Ref capsule(g_python.make_capsule(hook, kCapsuleName, destroy_hook));
  if (!capsule) {
    delete hook;
    return nullptr;
  }
  return g_python.make_function(&method, capsule.get(), nullptr);
}

int await_gradients(PyObject* gradients, int passes) {
  const intptr_t count = g_python.list_size(gradients);
  if (count < 0) return -1;
  std::vector<Started> all;
  all.reserve(static_cast<size_t>(count));
  for (intptr_t i = 0; i < count; ++i) {
    std::optional<Started> one = find_started(g_python.list_get(gradients, i));
    if (!one) return 0;
    all.push_back(std::move(*one));
  }
  std::vector<int64_t> handles;
  for (const Started& one : all) handles.push_back(one.handle);
  if (const int outcome = wait_for_all(all, handles); outcome != 1) return outcome;
  const Ref left(g_python.make_int(passes));
  if (!left) return -1;
  handles.clear();
  const bool are_noted =
      std::ranges::all_of(all, [&](const Started& one) { return note_settled(one, left.get(), handles); });
  rueda_release_all(handles.data(), static_cast<int32_t>(handles.size()));
  return are_noted ? 1 : -1;
}

}  // namespace rueda::torch
