// TensorFlow's C API without its headers: the types by name, the numbers that are used, and a table of
// functions that are looked up in the process at load. Immutable after find_tensorflow(); any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "plugins/tensorflow/tf_functions.h"

extern "C" {
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;
struct TF_Tensor;
struct TF_Status;
struct TF_StringView {
  const char* data;
  size_t len;
};
}
using TF_DataType = int;  // enums of C, as wide as int
using TF_Code = int;

namespace rueda::tensorflow {

// tensorflow/c/tf_datatype.h
enum TfType : TF_DataType {
  kTfFloat = 1,
  kTfDouble = 2,
  kTfInt32 = 3,
  kTfUint8 = 4,
  kTfInt16 = 5,
  kTfInt8 = 6,
  kTfInt64 = 9,
  kTfBool = 10,
  kTfBfloat16 = 14,
  kTfUint16 = 17,
  kTfHalf = 19,
};

// tensorflow/c/tf_status.h
enum TfCode : TF_Code {
  kTfOk = 0,
  kTfUnknown = 2,
  kTfInvalidArgument = 3,
  kTfFailedPrecondition = 9,
  kTfAborted = 10,
};

#define RUEDA_TF_MEMBER(result, name, arguments) result(*name) arguments;
struct TfApi {
  RUEDA_TF_FUNCTIONS(RUEDA_TF_MEMBER)
};
#undef RUEDA_TF_MEMBER

extern TfApi tf;  // all null until find_tensorflow() has succeeded

// Fills `tf` from the TensorFlow that is loaded in this process. Returns an empty string, or a sentence that
// says why it failed.
std::string find_tensorflow();
// Whether the address lies inside TensorFlow's own library.
bool is_in_tensorflow(const void* address);

class TfStatus {
 public:
  TfStatus() : status_(tf.TF_NewStatus()) {}
  ~TfStatus() { tf.TF_DeleteStatus(status_); }
  TfStatus(const TfStatus&) = delete;
  TfStatus& operator=(const TfStatus&) = delete;

  [[nodiscard]] TF_Status* get() const { return status_; }
  [[nodiscard]] bool is_ok() const { return tf.TF_GetCode(status_) == kTfOk; }
  void set(TF_Code code, const std::string& why) { tf.TF_SetStatus(status_, code, why.c_str()); }

 private:
  TF_Status* status_;
};

}  // namespace rueda::tensorflow
