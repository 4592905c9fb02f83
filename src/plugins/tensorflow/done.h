// TensorFlow's `done` of an asynchronous kernel, kept beyond the call.
//
// The adapter in TensorFlow hands out the address of a std::function<void()> on its own stack (2.16 to 2.21):
// the pointer dies with the call, the function does not. So the function is copied, after a look whether the
// object is what it should be: libstdc++ keeps manager and invoker in the third and fourth word, and both
// must be TensorFlow's.
#pragma once

#include <functional>

#include "plugins/tensorflow/tf_api.h"

namespace rueda::tensorflow {

// How kernels end. kBlocking: they wait inside the call, because `done` cannot be kept or the user said so.
enum class Mode { kUnknown, kAsynchronous, kBlocking };

Mode mode();                                             // any thread
Mode look_at(const TF_AsyncOpKernelDoneCallback* done);  // decides at the first call; any thread

class Done {
 public:
  Done() = default;
  // Copies in asynchronous mode, else borrows for the length of the kernel's call.
  explicit Done(TF_AsyncOpKernelDoneCallback* done);
  void operator()();  // once; the context and the kernel may be gone when it returns

 private:
  TF_AsyncOpKernelDoneCallback* borrowed_ = nullptr;
  std::function<void()> copied_;
};

}  // namespace rueda::tensorflow
