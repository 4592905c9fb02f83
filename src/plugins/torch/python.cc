#include "plugins/torch/python.h"

#include <dlfcn.h>

namespace rueda::torch {

Python g_python;

namespace {

// Names the first that is missing.
class Finder {
 public:
  template <class T>
  void find(const char* name, T& found) {
    found = reinterpret_cast<T>(dlsym(RTLD_DEFAULT, name));
    if (found == nullptr && missing_ == nullptr) missing_ = name;
  }
  [[nodiscard]] const char* missing() const { return missing_; }

 private:
  const char* missing_ = nullptr;
};

}  // namespace

std::string find_python() {
  Python& python = g_python;
  Finder finder;
  finder.find("Py_IncRef", python.incref);
  finder.find("Py_DecRef", python.decref);
  finder.find("PyObject_GetAttr", python.get_attr);
  finder.find("PyObject_SetAttr", python.set_attr);
  finder.find("PyObject_Type", python.type_of);
  finder.find("PyObject_CallFunctionObjArgs", python.call);
  finder.find("PyObject_CallMethodObjArgs", python.call_method);
  finder.find("PyLong_FromLongLong", python.make_int);
  finder.find("PyLong_AsLongLong", python.read_int);
  finder.find("PyUnicode_InternFromString", python.intern);
  finder.find("PyDict_SetItem", python.dict_set);
  finder.find("PyDict_DelItem", python.dict_delete);
  finder.find("PyDict_GetItemWithError", python.dict_get);
  finder.find("PyDict_Size", python.dict_size);
  finder.find("PyList_Size", python.list_size);
  finder.find("PyList_GetItem", python.list_get);
  finder.find("PyCapsule_New", python.make_capsule);
  finder.find("PyCapsule_GetPointer", python.capsule_pointer);
  finder.find("PyCFunction_NewEx", python.make_function);
  finder.find("PyErr_Occurred", python.error);
  finder.find("PyErr_Clear", python.clear_error);
  finder.find("PyErr_CheckSignals", python.run_signal_handlers);
  finder.find("PyEval_SaveThread", python.release_lock);
  finder.find("PyEval_RestoreThread", python.take_lock);
  finder.find("_Py_NoneStruct", python.none);
  finder.find("_Py_TrueStruct", python.true_);
  finder.find("_Py_FalseStruct", python.false_);
  if (finder.missing() == nullptr) return "";
  return std::string("this process shows no ") + finder.missing() + " of Python";
}

}  // namespace rueda::torch
