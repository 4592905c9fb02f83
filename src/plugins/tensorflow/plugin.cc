// The entry of the plugin: what happens at load, and the few functions that the front end calls by ctypes.
#include <string>

#include "plugins/tensorflow/done.h"
#include "plugins/tensorflow/engine_api.h"
#include "plugins/tensorflow/register.h"
#include "plugins/tensorflow/tf_api.h"

namespace rueda::tensorflow {
namespace {

std::string load() {
  std::string why = find_tensorflow();
  if (why.empty()) why = find_engine();
  if (why.empty()) why = register_everything();
  return why;
}

// TensorFlow makes Python functions only for operations that are registered while it opens the file. Hence a
// static object, and not an ELF constructor, which would run before the file's own objects exist. Leaked on
// purpose, because kernels may still run while static objects are destroyed.
const std::string& g_problem = *new std::string(load());

}  // namespace
}  // namespace rueda::tensorflow

extern "C" {

// A sentence that says why the plugin cannot be used; empty if it can.
__attribute__((visibility("default"))) const char* rueda_tensorflow_problem() {
  return rueda::tensorflow::g_problem.c_str();
}

// 1: operations end asynchronously; 0: they wait inside their kernel; -1: no operation has run yet.
__attribute__((visibility("default"))) int rueda_tensorflow_is_async() {
  switch (rueda::tensorflow::mode()) {
    case rueda::tensorflow::Mode::kUnknown:
      return -1;
    case rueda::tensorflow::Mode::kAsynchronous:
      return 1;
    case rueda::tensorflow::Mode::kBlocking:
      return 0;
  }
  return -1;
}

}  // extern "C"
