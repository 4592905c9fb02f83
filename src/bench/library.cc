#include "bench/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace rueda::bench {
namespace {

namespace fs = std::filesystem;

template <class Function>
Status look_up(void* handle, const std::string& path, const char* name, Function*& target) {
  target = reinterpret_cast<Function*>(dlsym(handle, name));
  if (target != nullptr) return Status::ok();
  return {
      Code::kUnsupported,
      fmt::format("{} has no function {}; use the library of the same release as this command", path, name)};
}

// Where the library may be for a command in this folder, best first: beside it, as in a build tree; after
// `pip install --target`; in a prefix, whose folder of libraries is lib, or lib64 on Fedora and RHEL.
std::vector<fs::path> places_near(const fs::path& folder) {
  std::vector<fs::path> places = {folder, folder / "..", folder / "../rueda/lib"};
  std::error_code error;
  for (const char* libraries : {"../lib", "../lib64"}) {
    places.push_back(folder / libraries);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder / libraries, error))
      if (entry.path().filename().string().starts_with("python"))
        for (const char* packages :
             {"site-packages", "dist-packages"})  // the latter: pip of Debian and Ubuntu
          places.push_back(entry.path() / packages / "rueda/lib");
  }
  return places;
}

}  // namespace

Result<std::string> find_library(const std::string& own_path) {
  const char* given = getenv("RUEDA_LIBRARY");
  if (given != nullptr && *given != '\0') return std::string(given);
  std::error_code error;
  for (const fs::path& place : places_near(fs::path(own_path).parent_path()))
    if (fs::exists(place / "librueda.so", error)) return (place / "librueda.so").lexically_normal().string();
  return Status(Code::kUnavailable,
                fmt::format("librueda.so was not found near {}; set RUEDA_LIBRARY to its path", own_path));
}

Result<Library> open_library(const std::string& own_path) {
  const Result<std::string> path = find_library(own_path);
  if (!path.is_ok()) return path.status();
  void* handle = dlopen(path.value().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Status(Code::kUnavailable,
                  fmt::format("cannot load {}: {}; set RUEDA_LIBRARY to the path of librueda.so",
                              path.value(), dlerror()));
  Library library{};
  library.path = path.value();
  Status status = Status::ok();
  const auto take = [&](const char* name, auto& target) {
    if (status.is_ok()) status = look_up(handle, library.path, name, target);
  };
  take("rueda_init", library.init);
  take("rueda_shutdown", library.shutdown);
  take("rueda_rank", library.rank);
  take("rueda_size", library.size);
  take("rueda_local_rank", library.local_rank);
  take("rueda_local_size", library.local_size);
  take("rueda_cross_size", library.cross_size);
  take("rueda_last_error", library.last_error);
  take("rueda_describe", library.describe);
  take("rueda_add_process_set", library.add_process_set);
  take("rueda_submit", library.submit);
  take("rueda_submit_for_wait", library.submit_for_wait);
  take("rueda_wait", library.wait);
  take("rueda_on_done", library.on_done);
  take("rueda_result", library.result);
  take("rueda_release", library.release);
  take("rueda_error", library.error);
  take("rueda_alloc", library.alloc);
  take("rueda_release_memory", library.release_memory);
  if (!status.is_ok()) return status;
  return library;
}

}  // namespace rueda::bench
