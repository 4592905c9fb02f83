#include "plugins/tensorflow/tf_api.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <vector>

namespace rueda::tensorflow {

TfApi tf{};

namespace {

const void* g_base = nullptr;  // load address of the library that holds the C API

int collect_path(dl_phdr_info* info, size_t /*size*/, void* paths) {
  // Collects paths only: dlopen inside this callback would take the loader's locks in the wrong order.
  if (info->dlpi_name != nullptr && std::strstr(info->dlpi_name, "tensorflow") != nullptr) {
    static_cast<std::vector<std::string>*>(paths)->emplace_back(info->dlpi_name);
  }
  return 0;
}

// Frameworks are loaded RTLD_LOCAL, so the default search does not see them. This asks each loaded object
// in turn instead.
void* open_owner() {
  std::vector<std::string> paths;
  dl_iterate_phdr(collect_path, &paths);
  for (const std::string& path : paths) {
    void* const object = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    void* const symbol = object != nullptr ? dlsym(object, "TF_RegisterOpDefinition") : nullptr;
    Dl_info found{};
    if (symbol == nullptr || dladdr(symbol, &found) == 0) continue;
    g_base = found.dli_fbase;
    void* const owner = dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return owner != nullptr ? owner : object;
  }
  return nullptr;
}

}  // namespace

std::string find_tensorflow() {
  void* const owner = open_owner();
  if (owner == nullptr) {
    return "no TensorFlow is loaded in this process; import tensorflow before loading the plugin.";
  }
  std::string missing;
#define RUEDA_TF_FIND(result, name, arguments)                          \
  tf.name = reinterpret_cast<result(*) arguments>(dlsym(owner, #name)); \
  if (tf.name == nullptr) missing = #name;
  RUEDA_TF_FUNCTIONS(RUEDA_TF_FIND)
#undef RUEDA_TF_FIND
  if (missing.empty()) return {};
  return "this TensorFlow has no " + missing + " in its C API; use TensorFlow 2.16 to 2.21.";
}

bool is_in_tensorflow(const void* address) {
  Dl_info found{};
  return dladdr(address, &found) != 0 && found.dli_fbase == g_base;
}

}  // namespace rueda::tensorflow
