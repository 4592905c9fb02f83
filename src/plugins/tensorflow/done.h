// Keeps TensorFlow's `done` of an asynchronous kernel beyond the kernel's call.
//
// The adapter in TensorFlow (2.16 to 2.21) passes the address of a std::function<void()> on its own stack.
// The pointer dies with the call, but the function does not. So the function is copied, after a check that
// the object is what it should be: libstdc++ keeps manager and invoker in the third and fourth word, and both
// must belong to TensorFlow.
#pragma once

#include <functional>

#include "plugins/tensorflow/tf_api.h"

namespace rueda::tensorflow {

// How kernels end. kBlocking: they wait inside the call, because `done` cannot be kept or the user said so.
enum class Mode { kUnknown, kAsynchronous, kBlocking };

Mode mode();                                             // any thread
Mode look_at(const TF_AsyncOpKernelDoneCallback* done);  // the first call decides; any thread

class Done {
 public:
  Done() = default;
  // In asynchronous mode it copies `done`; otherwise it borrows it during the call of the kernel.
  explicit Done(TF_AsyncOpKernelDoneCallback* done);
  void operator()();  // once; the context and the kernel may be gone when it returns

 private:
  TF_AsyncOpKernelDoneCallback* borrowed_ = nullptr;
  std::function<void()> copied_;
};

}  // namespace rueda::tensorflow
