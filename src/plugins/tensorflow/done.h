// Keeps TensorFlow's `done` of an asynchronous kernel beyond the kernel's call.
//
// The adapter in TensorFlow (2.16 to 2.21) passes the address of a std::function<void()> on its own stack.
// The pointer dies with the call, but the function does not. So the function is copied, after a check that
// the object is what it should be: libstdc++ keeps manager and invoker in the third and fourth word, and both
// must belong to TensorFlow.
#pragma once

#include "plugins/tensorflow/tf_api.h"

namespace rueda::tensorflow {

// How kernels end. kBlocking: they wait inside the call, because `done` cannot be kept or the user said so.
enum class Mode { kUnknown, kAsynchronous, kBlocking };

Mode mode();                                             // any thread
Mode look_at(const TF_AsyncOpKernelDoneCallback* done);  // the first call decides; any thread

// A copy of a std::function<void()> of libstdc++, whatever library this code is compiled with. The layout has
// been the same since GCC 4: two words that hold the callable, or a pointer to it, and two functions.
class CopiedFunction {
 public:
  CopiedFunction() = default;
  explicit CopiedFunction(const void* function);
  CopiedFunction(CopiedFunction&& other) noexcept { *this = static_cast<CopiedFunction&&>(other); }
  CopiedFunction& operator=(CopiedFunction&& other) noexcept;
  ~CopiedFunction();

  [[nodiscard]] void* get() { return &words_; }  // as the address of a std::function<void()>
  // Whether both functions of the object are code of TensorFlow.
  [[nodiscard]] static bool is_tensorflows(const void* function);

 private:
  enum class Operation : int { kClone = 2, kDestroy = 3 };  // of std::_Manager_operation
  struct Words {
    void* callable[2] = {};
    bool (*manager)(void* to, const void* from, Operation operation) = nullptr;
    void* invoker = nullptr;
  };
  static Words words_of(const void* function);

  Words words_;
};

class Done {
 public:
  Done() = default;
  // In asynchronous mode it copies `done`; otherwise it borrows it during the call of the kernel.
  explicit Done(TF_AsyncOpKernelDoneCallback* done);
  void operator()();  // once; the context and the kernel may be gone when it returns

 private:
  TF_AsyncOpKernelDoneCallback* borrowed_ = nullptr;
  CopiedFunction copied_;
};

}  // namespace rueda::tensorflow
