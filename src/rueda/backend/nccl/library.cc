#include "rueda/backend/nccl/library.h"

#include <dlfcn.h>

#include <filesystem>
#include <type_traits>
#include <utility>

namespace rueda::nccl {
namespace {

constexpr const char* kName = "libnccl.so.2";

struct Found {
  void* handle = nullptr;
  std::string error;  // of the loader
};

Found load(const char* path, int flags) {
  Found found;
  found.handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL | flags);
  if (found.handle != nullptr) return found;
  const char* const why = dlerror();
  found.error = why == nullptr ? "it is not loaded" : why;
  return found;
}

std::string path_of(const void* address) {
  Dl_info info{};
  const bool is_known = dladdr(address, &info) != 0 && info.dli_fname != nullptr;
  return is_known ? info.dli_fname : "";
}

Found find(const std::string& path) {
  if (!path.empty()) return load(path.c_str(), 0);
  if (Found found = load(kName, RTLD_NOLOAD); found.handle != nullptr) return found;
  for (const std::string& candidate : wheel_paths(path_of(reinterpret_cast<const void*>(&version_text)))) {
    std::error_code ignored;
    if (!std::filesystem::exists(candidate, ignored)) continue;
    if (Found found = load(candidate.c_str(), 0); found.handle != nullptr) return found;
  }
  return load(kName, 0);
}

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::vector<std::string> wheel_paths(std::string_view path_of_this_library) {
  constexpr int kLevels = 3;  // site-packages/rueda/lib/librueda.so
  std::vector<std::string> paths;
  std::filesystem::path folder = std::filesystem::path(path_of_this_library).parent_path();
  for (int level = 0; level < kLevels && !folder.empty(); ++level) {
    paths.push_back((folder / "nvidia" / "nccl" / "lib" / kName).string());
    // Fedora and RHEL keep binary packages in lib64 and others, of which NVIDIA's call themselves, in lib.
    if (const size_t at = paths.back().find("/lib64/python"); at != std::string::npos)
      paths.push_back(std::string(paths.back()).replace(at, sizeof("/lib64/") - 1, "/lib/"));
    if (!folder.has_relative_path()) break;
    folder = folder.parent_path();
  }
  return paths;
}

Result<std::shared_ptr<const Library>> Library::open(const std::string& path) {
  const Found found = find(path);
  return use(found.handle, found.error, path);
}

Result<int> Library::version_at(const std::string& path) {
  const Found found = find(path);
  const Result<std::shared_ptr<const Library>> library = use(found.handle, found.error, path);
  if (found.handle != nullptr) dlclose(found.handle);
  if (!library.is_ok()) return library.status();
  return library.value()->version();
}

Result<std::shared_ptr<const Library>> Library::use(void* handle, const std::string& error,
                                                    const std::string& path) {
  const std::string which = path.empty() ? kName : "RUEDA_NCCL_LIBRARY=" + path;
  if (handle == nullptr)
    return Status(Code::kUnavailable, which + " cannot be loaded (" + error +
                                          "); install nvidia-nccl-cu12 or nvidia-nccl-cu13, or name the "
                                          "library with RUEDA_NCCL_LIBRARY.");
  auto library = std::make_shared<Library>();
  std::string missing;
  for_each_function(library->functions_, [&](const char* name, auto& function) {
    void* const address = dlsym(handle, name);
    if (address == nullptr && missing.empty()) missing = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  });
  const auto get_version = library->functions_.GetVersion;
  if (get_version != nullptr) library->path_ = path_of(reinterpret_cast<const void*>(get_version));
  if (get_version == nullptr || get_version(&library->version_) != kSuccess)
    return Status(Code::kUnavailable, which + " does not tell its version; it is not NVIDIA's NCCL.");
  // Before 2.9 the number had four digits.
  if (library->version_ < kLeastVersion) {
    const int version = library->version_;
    const std::string text = version < 10000
                                 ? std::to_string(version / 1000) + "." + std::to_string(version / 100 % 10) +
                                       "." + std::to_string(version % 100)
                                 : version_text(version);
    return Status(Code::kUnavailable, library->path_ + " is NCCL " + text + ", and rueda needs " +
                                          version_text(kLeastVersion) +
                                          " or later; upgrade it, or name another one with "
                                          "RUEDA_NCCL_LIBRARY.");
  }
  if (!missing.empty())
    return Status(Code::kUnavailable, library->path_ + " (NCCL " + version_text(library->version_) +
                                          ") has no function " + missing + "; reinstall NCCL.");
  return std::shared_ptr<const Library>(std::move(library));
}

Status Library::check(ResultCode result, std::string_view function, CommHandle comm) const {
  if (result == kSuccess || result == kInProgress) return Status::ok();
  const char* const text = functions_.GetErrorString(result);
  std::string why = std::string(function) + " failed: " + (text == nullptr ? "unknown error" : text);
  const char* const last = functions_.GetLastError(comm);
  if (last != nullptr && *last != '\0') why += " (" + std::string(last) + ")";
  const bool is_remote = result == kRemoteError;
  return {is_remote ? Code::kPeerLost : Code::kUnavailable, why + "; NCCL_DEBUG=INFO makes NCCL tell more."};
}

}  // namespace rueda::nccl
