#include "plugins/tensorflow/engine_api.h"

#include <dlfcn.h>

#include <cstdlib>

namespace rueda::tensorflow {

EngineApi engine{};

namespace {

// The same rule as in rueda/_core.py.
std::string library_path() {
  const char* const given = std::getenv("RUEDA_LIBRARY");
  if (given != nullptr && given[0] != '\0') return given;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&find_engine), &self) == 0) return "librueda.so";
  const std::string path = self.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + "librueda.so";
}

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::string find_engine() {
  const std::string path = library_path();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return "the engine " + path + " cannot be loaded (" + (why != nullptr ? why : "no reason given") +
           "); reinstall rueda or set RUEDA_LIBRARY to the path of librueda.so.";
  }
  const bool is_complete =
      find(library, "rueda_submit", engine.submit) && find(library, "rueda_wait", engine.wait) &&
      find(library, "rueda_on_done", engine.on_done) && find(library, "rueda_result", engine.result) &&
      find(library, "rueda_detach", engine.detach) && find(library, "rueda_free", engine.free) &&
      find(library, "rueda_release", engine.release) && find(library, "rueda_error", engine.error) &&
      find(library, "rueda_last_error", engine.last_error) &&
      find(library, "rueda_is_initialized", engine.is_initialized) &&
      find(library, "rueda_rank", engine.rank) && find(library, "rueda_local_rank", engine.local_rank) &&
      find(library, "rueda_local_size", engine.local_size) &&
      find(library, "rueda_process_set_ranks", engine.process_set_ranks) &&
      find(library, "rueda_mark_step", engine.mark_step);
  if (is_complete) return {};
  return "the engine " + path + " is of another version of rueda; reinstall rueda.";
}

}  // namespace rueda::tensorflow
