#include "plugins/tensorflow/done.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace rueda::tensorflow {
namespace {

std::atomic<Mode> g_mode{Mode::kUnknown};

bool is_forbidden() {
  const char* const setting = std::getenv("RUEDA_TENSORFLOW_ASYNC");
  return setting != nullptr && std::string_view(setting) == "0";
}

}  // namespace

CopiedFunction::Words CopiedFunction::words_of(const void* function) {
  Words words;
  std::memcpy(&words, function, sizeof(words));
  return words;
}

bool CopiedFunction::is_tensorflows(const void* function) {
  const Words words = words_of(function);
  const auto* const manager = reinterpret_cast<const void*>(words.manager);
  return manager != nullptr && words.invoker != nullptr && is_in_tensorflow(manager) &&
         is_in_tensorflow(words.invoker);
}

CopiedFunction::CopiedFunction(const void* function) {
  Words words = words_of(function);
  words.manager(&words.callable, function, Operation::kClone);
  words_ = words;
}

CopiedFunction& CopiedFunction::operator=(CopiedFunction&& other) noexcept {
  std::swap(words_, other.words_);
  return *this;
}

CopiedFunction::~CopiedFunction() {
  if (words_.manager != nullptr) words_.manager(&words_.callable, &words_.callable, Operation::kDestroy);
}

Mode mode() { return g_mode.load(std::memory_order_relaxed); }

Mode look_at(const TF_AsyncOpKernelDoneCallback* done) {
  const Mode known = mode();
  if (known != Mode::kUnknown) return known;
  const Mode found =
      !is_forbidden() && CopiedFunction::is_tensorflows(done) ? Mode::kAsynchronous : Mode::kBlocking;
  g_mode.store(found, std::memory_order_relaxed);
  return found;
}

Done::Done(TF_AsyncOpKernelDoneCallback* done) {
  if (look_at(done) == Mode::kAsynchronous) {
    copied_ = CopiedFunction(done);
  } else {
    borrowed_ = done;
  }
}

void Done::operator()() {
  auto* const callback =
      borrowed_ != nullptr ? borrowed_ : static_cast<TF_AsyncOpKernelDoneCallback*>(copied_.get());
  tf.TF_RunAsyncOpKernelDoneCallback(callback);
}

}  // namespace rueda::tensorflow
