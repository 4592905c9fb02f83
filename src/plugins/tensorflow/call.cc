#include "plugins/tensorflow/call.h"

#include <cstring>
#include <utility>

namespace rueda::tensorflow {
namespace {

char g_nothing = 0;  // the address given for tensors without elements

int32_t engine_type(TF_DataType type) {
  switch (type) {
    case kTfFloat:
      return RUEDA_FLOAT32;
    case kTfDouble:
      return RUEDA_FLOAT64;
    case kTfInt32:
      return RUEDA_INT32;
    case kTfUint8:
      return RUEDA_UINT8;
    case kTfInt16:
      return RUEDA_INT16;
    case kTfInt8:
      return RUEDA_INT8;
    case kTfInt64:
      return RUEDA_INT64;
    case kTfBool:
      return RUEDA_BOOL;
    case kTfBfloat16:
      return RUEDA_BFLOAT16;
    case kTfUint16:
      return RUEDA_UINT16;
    case kTfHalf:
      return RUEDA_FLOAT16;
    default:
      return -1;  // the definitions of the operations admit no other type
  }
}

// Chooses the class of tf.errors that scripts written for Horovod catch.
TF_Code code_of(int engine_status) {
  switch (engine_status) {
    case RUEDA_MISMATCH:
    case RUEDA_NOT_INITIALIZED:
      return kTfFailedPrecondition;
    case RUEDA_INVALID_ARGUMENT:
    case RUEDA_DUPLICATE_NAME:
      return kTfInvalidArgument;
    case RUEDA_UNSUPPORTED:
      return kTfAborted;
    default:
      return kTfUnknown;
  }
}

void* data_of(const TF_Tensor* tensor) {
  void* const data = tensor != nullptr ? tf.TF_TensorData(tensor) : nullptr;
  return data != nullptr ? data : &g_nothing;
}

rueda_result_info empty_result() {
  rueda_result_info info{};
  info.struct_size = sizeof(info);
  return info;
}

void free_engine_memory(void* data, size_t /*bytes*/, void* /*argument*/) { engine.free(data); }

}  // namespace

void Call::start(const Kernel& kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  (new Call(kernel, context, done))->run();
}

Call::Call(const Kernel& kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done)
    : kernel_(kernel), context_(context), done_(done) {}

Call::~Call() {
  for (const Item& item : items_) {
    if (item.input != nullptr) tf.TF_DeleteTensor(item.input);
    if (item.output != nullptr) tf.TF_DeleteTensor(item.output);
  }
}

void Call::run() {
  if (!prepare() || !submit()) return end();
  if (mode() == Mode::kBlocking) {
    engine.wait(handle_, -1.0);  // ends with the operation; if a peer is lost, the engine ends all operations
    return complete();
  }
  // Refused only if the engine ended between the two calls. Then nobody else will call on_done.
  if (const int status = engine.on_done(handle_, &Call::on_done, this); status != RUEDA_OK) {
    fail(status, engine.last_error());
    end();
  }
}

// ---- before the operation: inputs and outputs ----

bool Call::prepare() {
  if (kernel_.what == RUEDA_JOIN || kernel_.what == RUEDA_BARRIER) {
    items_.emplace_back().name = kernel_.name;
    return true;
  }
  if (!kernel_.is_group) {
    items_.reserve(1);
    return prepare_item(0, kernel_.name) && (kernel_.what != RUEDA_ALLTOALL || read_splits());
  }
  const int count = tf.TF_NumInputs(context_);
  items_.reserve(static_cast<size_t>(count));
  const std::string end = "of" + std::to_string(count);
  for (int i = 0; i < count; ++i) {
    if (!prepare_item(i, kernel_.name + "_" + std::to_string(i + 1) + end)) return false;
  }
  return true;
}

bool Call::prepare_item(int index, const std::string& name) {
  TfStatus status;
  Item& item = items_.emplace_back();
  item.name = name;
  tf.TF_GetInput(context_, index, &item.input, status.get());
  if (!check(status)) return false;
  item.type = tf.TF_TensorType(item.input);
  item.shape.resize(static_cast<size_t>(tf.TF_NumDims(item.input)));
  for (size_t axis = 0; axis < item.shape.size(); ++axis) {
    item.shape[axis] = tf.TF_Dim(item.input, static_cast<int>(axis));
  }
  const bool keeps_shape = kernel_.what == RUEDA_ALLREDUCE || kernel_.what == RUEDA_BROADCAST;
  return !keeps_shape || prepare_output(index, item);
}

// Reduces in the input's own memory if TensorFlow allows that. New pages would cost more than the copy
// that they save.
bool Call::prepare_output(int index, Item& item) {
  TfStatus status;
  tf.TF_DeleteTensor(std::exchange(item.input, nullptr));  // TensorFlow forwards only the last reference
  int forwarded = -1;
  item.output =
      tf.TF_ForwardInputOrAllocateOutput(context_, &index, 1, index, item.shape.data(),
                                         static_cast<int>(item.shape.size()), &forwarded, status.get());
  if (!check(status)) return false;
  if (forwarded == index) return true;
  tf.TF_GetInput(context_, index, &item.input, status.get());
  return check(status);
}

bool Call::read_splits() {
  TfStatus status;
  TF_Tensor* splits = nullptr;
  tf.TF_GetInput(context_, 1, &splits, status.get());
  if (!check(status)) return false;
  const bool is_vector = tf.TF_NumDims(splits) == 1;
  if (is_vector) {
    const auto* const first = static_cast<const int32_t*>(tf.TF_TensorData(splits));
    splits_.assign(first, first + tf.TF_Dim(splits, 0));
    has_splits_ = !splits_.empty();  // an empty vector stands for an even split
  }
  tf.TF_DeleteTensor(splits);
  if (!is_vector)
    fail(RUEDA_INVALID_ARGUMENT, "alltoall expects a 1D splits tensor. Tensor " + kernel_.name + ".");
  return is_vector;
}

bool Call::submit() {
  std::vector<rueda_request> requests(items_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    const bool has_data = kernel_.what != RUEDA_JOIN && kernel_.what != RUEDA_BARRIER;
    rueda_request& request = requests[i];
    request = {};
    request.struct_size = sizeof(request);
    request.what = kernel_.what;
    request.dtype = engine_type(item.type);
    request.op = kernel_.op;
    request.name = item.name.c_str();
    request.process_set = kernel_.process_set;
    request.root_rank = kernel_.root_rank;
    request.prescale = kernel_.prescale;
    request.postscale = kernel_.postscale;
    request.wire = kernel_.wire;
    request.ndim = static_cast<int32_t>(item.shape.size());
    request.device = -1;  // GPU kernels are registered for host memory
    request.shape = item.shape.data();
    request.input = has_data ? data_of(item.input != nullptr ? item.input : item.output) : nullptr;
    request.output = item.output != nullptr ? data_of(item.output) : nullptr;
    request.splits = has_splits_ ? splits_.data() : nullptr;
    request.split_count = has_splits_ ? static_cast<int32_t>(splits_.size()) : 0;
  }
  const int status = engine.submit(requests.data(), static_cast<int32_t>(requests.size()), &handle_);
  if (status != RUEDA_OK) fail(status, engine.last_error());
  return status == RUEDA_OK;
}

// ---- after the operation: results ----

void Call::on_done(void* call) { static_cast<Call*>(call)->complete(); }

void Call::complete() {
  const int status = engine.wait(handle_, 0.0);  // it has ended; this returns how
  if (status != RUEDA_OK) {
    std::string why = engine.last_error();
    if (const char* const said = engine.error(handle_); said != nullptr && said[0] != '\0') why = said;
    fail(status, why);
  } else if (kernel_.what == RUEDA_JOIN) {
    rueda_result_info info = empty_result();
    engine.result(handle_, 0, &info);
    deliver_int32(0, {info.last_joined_rank}, true);
  } else if (kernel_.what != RUEDA_BARRIER) {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].output == nullptr && !deliver(static_cast<int>(i))) break;
    }
    if (kernel_.what == RUEDA_ALLTOALL) deliver_received_splits();
  }
  engine.release(handle_);
  end();
}

bool Call::deliver(int index) {
  TfStatus status;
  const TF_DataType type = items_[static_cast<size_t>(index)].type;
  rueda_result_info info = empty_result();
  if (const int found = engine.result(handle_, index, &info); found != RUEDA_OK) {
    fail(found, engine.last_error());
    return false;
  }
  TF_Tensor* output = nullptr;
  if (info.bytes == 0) {
    output = tf.TF_AllocateOutput(context_, index, type, info.shape, info.ndim, 0, status.get());
  } else {
    // Passes the engine's memory on without a copy; TensorFlow frees it. (It is aligned as
    // TensorFlow wants it.)
    void* const data = engine.detach(handle_, index);
    output = tf.TF_NewTensor(type, info.shape, info.ndim, data, info.bytes, free_engine_memory, nullptr);
    tf.TF_SetOutput(context_, index, output, status.get());
  }
  if (output != nullptr) tf.TF_DeleteTensor(output);
  return check(status);
}

bool Call::deliver_received_splits() {
  rueda_result_info info = empty_result();
  if (engine.result(handle_, 0, &info) != RUEDA_OK) return false;  // reported by deliver
  return deliver_int32(1, {info.received_splits, info.received_splits + info.split_count}, false);
}

bool Call::deliver_int32(int output, const std::vector<int32_t>& values, bool is_scalar) {
  TfStatus status;
  const auto count = static_cast<int64_t>(values.size());
  const size_t bytes = values.size() * sizeof(int32_t);
  TF_Tensor* const tensor =
      tf.TF_AllocateOutput(context_, output, kTfInt32, &count, is_scalar ? 0 : 1, bytes, status.get());
  if (status.is_ok() && bytes > 0) std::memcpy(tf.TF_TensorData(tensor), values.data(), bytes);
  if (tensor != nullptr) tf.TF_DeleteTensor(tensor);
  return check(status);
}

// ---- failures and the end ----

bool Call::check(const TfStatus& status) {
  if (!status.is_ok()) tf.TF_OpKernelContext_Failure(context_, status.get());
  return status.is_ok();
}

void Call::fail(int engine_status, const std::string& why) {
  TfStatus status;
  status.set(code_of(engine_status), why);
  tf.TF_OpKernelContext_Failure(context_, status.get());
}

void Call::end() {
  Done done = std::move(done_);
  delete this;  // the references to tensors must be gone before TensorFlow goes on
  done();
}

}  // namespace rueda::tensorflow
