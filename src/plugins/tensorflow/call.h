// One execution of a collective operation, from TensorFlow's compute to its done. It owns itself while it
// is in flight.
//
// Threads: created on a thread of TensorFlow and finished on the engine's thread (in blocking mode, or if the
// operation is refused, on TensorFlow's). In asynchronous mode nothing blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/tensorflow/done.h"
#include "plugins/tensorflow/engine_api.h"
#include "plugins/tensorflow/kernel.h"
#include "plugins/tensorflow/tf_api.h"

namespace rueda::tensorflow {

class Call {
 public:
  // Starts the operation. kernel and context live until done is called.
  static void start(const Kernel& kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);

 private:
  // One tensor; the handles keep the memory alive while the engine uses it.
  struct Item {
    TF_Tensor* input = nullptr;   // null if the output took over its memory
    TF_Tensor* output = nullptr;  // null if the engine allocates the result
    TF_DataType type = kTfFloat;
    std::vector<int64_t> shape;
    std::string name;
  };

  Call(const Kernel& kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool prepare();  // false: it failed, and the failure is reported
  bool prepare_item(int index, const std::string& name);
  bool prepare_output(int index, Item& item);
  bool read_splits();
  bool submit();
  void run();

  static void on_done(void* call);
  void complete();                 // the engine has finished
  bool deliver(int index);         // one result that the engine allocated
  bool deliver_received_splits();  // alltoall
  bool deliver_int32(int output, const std::vector<int32_t>& values, bool is_scalar);
  void fail(int engine_status, const std::string& why);
  bool check(const TfStatus& status);  // false if not ok; then the failure is reported
  void end();                          // calls done; afterwards the call and all it points to are gone

  const Kernel& kernel_;
  TF_OpKernelContext* context_;
  Done done_;
  std::vector<Item> items_;
  std::vector<int32_t> splits_;
  bool has_splits_ = false;
  int64_t handle_ = 0;
};

}  // namespace rueda::tensorflow
