// CPython's C functions that the hook of gradients calls, by hand: those of the limited API of Python 3.9,
// which all later versions keep, and only functions. They do not depend on the layout of objects, so the same
// library serves every CPython from 3.9 on, free-threaded builds too, and needs no headers of Python. They
// are found in the process when the hook is installed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace rueda::torch {

struct PyObject;  // of CPython

struct PyMethodDef {
  const char* name = nullptr;
  PyObject* (*function)(PyObject* self, PyObject* argument) = nullptr;
  int flags = 0;
  const char* doc = nullptr;
};
inline constexpr int kOneArgument = 0x0008;  // METH_O

struct Python {
  void (*incref)(PyObject*) = nullptr;
  void (*decref)(PyObject*) = nullptr;
  PyObject* (*get_attr)(PyObject* object, PyObject* name) = nullptr;
  int (*set_attr)(PyObject* object, PyObject* name, PyObject* value) = nullptr;
  PyObject* (*type_of)(PyObject* object) = nullptr;
  PyObject* (*call)(PyObject* callable, ...) = nullptr;                       // arguments, then a null
  PyObject* (*call_method)(PyObject* object, PyObject* name, ...) = nullptr;  // arguments, then a null
  PyObject* (*make_int)(long long value) = nullptr;
  long long (*read_int)(PyObject* object) = nullptr;
  PyObject* (*intern)(const char* text) = nullptr;
  int (*dict_set)(PyObject* dict, PyObject* key, PyObject* value) = nullptr;
  int (*dict_delete)(PyObject* dict, PyObject* key) = nullptr;
  PyObject* (*dict_get)(PyObject* dict, PyObject* key) = nullptr;  // borrowed
  intptr_t (*dict_size)(PyObject* dict) = nullptr;
  intptr_t (*list_size)(PyObject* list) = nullptr;
  PyObject* (*list_get)(PyObject* list, intptr_t index) = nullptr;  // borrowed
  PyObject* (*make_capsule)(void* pointer, const char* name, void (*destroy)(PyObject*)) = nullptr;
  void* (*capsule_pointer)(PyObject* capsule, const char* name) = nullptr;
  PyObject* (*make_function)(PyMethodDef* method, PyObject* self, PyObject* module) = nullptr;
  PyObject* (*error)() = nullptr;  // borrowed; null: no exception is set
  void (*clear_error)() = nullptr;
  int (*run_signal_handlers)() = nullptr;  // -1: one of them has raised
  void* (*release_lock)() = nullptr;
  void (*take_lock)(void* thread) = nullptr;
  PyObject* none = nullptr;
  PyObject* true_ = nullptr;
  PyObject* false_ = nullptr;
};

// The functions of the Python of this process. `find_python` fills it, and is called first.
extern Python g_python;
// Returns "", or why the functions cannot be used.
std::string find_python();

// A reference to an object of Python; null after an error. Only where the thread has the interpreter's lock.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  static Ref of(PyObject* borrowed) {
    if (borrowed != nullptr) g_python.incref(borrowed);
    return Ref(borrowed);
  }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) g_python.decref(object_);
  }
  [[nodiscard]] PyObject* get() const { return object_; }
  [[nodiscard]] PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }
  [[nodiscard]] bool is_none() const { return object_ == g_python.none; }

 private:
  PyObject* object_ = nullptr;
};

}  // namespace rueda::torch
