// The entry of the plugin: what rueda/torch/arena.py and gradient_hooks.py call by ctypes.
#include <pthread.h>

#include <string>

#include "plugins/torch/allocator.h"
#include "plugins/torch/c10.h"
#include "plugins/torch/gradient_hook.h"
#include "plugins/torch/self_test.h"
#include "rueda/rueda.h"

#define RUEDA_EXPORT extern "C" __attribute__((visibility("default")))

namespace rueda::torch {
namespace {

// Leaked on purpose, because torch frees tensors while static objects are destroyed.
ArenaAllocator* g_allocator = nullptr;
C10 g_c10;

void leave_to_torch() { g_allocator->leave_to_torch(); }

std::string install(const char* libc10, const char* libtorch_cpu) {
  if (g_allocator != nullptr) return "";
  if (std::string why = find_c10(libc10, libtorch_cpu, g_c10); !why.empty()) return why;
  Allocator* const original = g_c10.get();
  if (std::string why = test_original(*original); !why.empty()) return why;
  void* const block = rueda_alloc(1);
  if (block == nullptr) return std::string("there is no shared memory: ") + rueda_last_error();
  rueda_release_memory(block);
  auto* const ours = new ArenaAllocator(original, g_c10.graph_task);
  if (std::string why = test_ours(*ours); !why.empty()) return why;
  g_c10.set(ours, 0);
  if (g_c10.get() != ours) return "torch keeps an allocator of higher priority";
  g_allocator = ours;
  // A forked child has no engine, and another thread may have held the lock.
  pthread_atfork(nullptr, nullptr, leave_to_torch);
  return "";
}

}  // namespace
}  // namespace rueda::torch

using rueda::torch::g_allocator;
using rueda::torch::PyObject;

// Makes torch allocate awaited gradients in the arena. Returns "", or the reason why torch's own allocator
// was left in place. Call it from one thread.
RUEDA_EXPORT const char* rueda_torch_install(const char* libc10, const char* libtorch_cpu) {
  static std::string& why = *new std::string;
  why = rueda::torch::install(libc10, libtorch_cpu);
  return why.c_str();
}

// Requires a successful rueda_torch_install. by: 1 or -1. Returns how many gradients are awaited then.
RUEDA_EXPORT int32_t rueda_torch_await(uint64_t bytes, int32_t by) {
  return by > 0 ? g_allocator->await(bytes) : g_allocator->forget(bytes);
}

// Blocks placed in the arena so far, and those that found no room there.
RUEDA_EXPORT void rueda_torch_counts(int64_t* placed, int64_t* refused) {
  *placed = g_allocator != nullptr ? g_allocator->placed() : 0;
  *refused = g_allocator != nullptr ? g_allocator->refused() : 0;
}

// Returns "", or the reason why the hook in Python has to do; see gradient_hook.h for this and what follows.
RUEDA_EXPORT const char* rueda_torch_install_hooks(PyObject* tensor_type, PyObject* exchange,
                                                   PyObject* open_operations, PyObject* writing_back) {
  static std::string& why = *new std::string;
  why = rueda::torch::install_hooks({.tensor_type = tensor_type,
                                     .exchange = exchange,
                                     .open_operations = open_operations,
                                     .writing_back = writing_back});
  return why.c_str();
}

RUEDA_EXPORT PyObject* rueda_torch_make_hook(PyObject* slot, PyObject* activity, PyObject* in_general) {
  return rueda::torch::make_hook(slot, activity, in_general);
}

RUEDA_EXPORT int rueda_torch_await_gradients(PyObject* gradients, int passes) {
  return rueda::torch::await_gradients(gradients, passes);
}
