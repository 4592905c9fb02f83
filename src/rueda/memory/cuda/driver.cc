#include "rueda/memory/cuda/driver.h"

#include <dlfcn.h>

namespace rueda::cuda {
namespace {

// cuGetProcAddress of CUDA 11.3, and its successor since CUDA 12.
using GetProcAddress = CUresult (*)(const char* name, void** function, int version, uint64_t flags);
using GetProcAddressV2 = CUresult (*)(const char* name, void** function, int version, uint64_t flags,
                                      int* status);

class Finder {
 public:
  explicit Finder(void* library)
      : newer_(reinterpret_cast<GetProcAddressV2>(dlsym(library, "cuGetProcAddress_v2"))),
        older_(reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress"))) {}

  [[nodiscard]] bool is_usable() const { return newer_ != nullptr || older_ != nullptr; }
  // The function as this version of CUDA declared it; null if there is none.
  [[nodiscard]] void* find(const char* name, int version = kApiVersion) const {
    void* function = nullptr;
    int status = 0;
    const CUresult result = newer_ != nullptr ? newer_(name, &function, version, 0, &status)
                                              : older_(name, &function, version, 0);
    return result == CUDA_SUCCESS ? function : nullptr;
  }

 private:
  GetProcAddressV2 newer_;
  GetProcAddress older_;
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Status too_old(const std::string& library, int version) {
  const std::string found =
      version > 0 ? "supports CUDA " + version_text(version) : "is older than CUDA 11.3";
  return {Code::kUnsupported, "the CUDA driver " + library + " " + found +
                                  "; rueda needs a driver for CUDA 11.3 or newer (R465): update the driver."};
}

}  // namespace

Result<std::shared_ptr<const Driver>> Driver::load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return Status(Code::kUnavailable, "the CUDA driver cannot be loaded: " +
                                          std::string(why != nullptr ? why : library.c_str()) + ".");
  }
  const Finder finder(handle);
  auto driver = std::make_shared<Driver>();
  const auto version = reinterpret_cast<CUresult (*)(int*)>(dlsym(handle, "cuDriverGetVersion"));
  if (version == nullptr || version(&driver->version) != CUDA_SUCCESS) driver->version = 0;
  if (!finder.is_usable() || driver->version < kApiVersion) return too_old(library, driver->version);
  std::string missing;
#define RUEDA_CUDA_FIND(name, arguments)                                      \
  driver->name = reinterpret_cast<CUresult(*) arguments>(finder.find(#name)); \
  if (driver->name == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(#name);
  RUEDA_CUDA_FUNCTIONS(RUEDA_CUDA_FIND)
#undef RUEDA_CUDA_FIND
  driver->uuid_of_instance = driver->cuDeviceGetUuid;
  if (driver->version >= kUuidVersion)
    if (void* const newer = finder.find("cuDeviceGetUuid", kUuidVersion); newer != nullptr)
      driver->uuid_of_instance = reinterpret_cast<decltype(driver->uuid_of_instance)>(newer);
  if (missing.empty()) return std::shared_ptr<const Driver>(std::move(driver));
  return Status(Code::kUnsupported, "the CUDA driver " + library + " (CUDA " + version_text(driver->version) +
                                        ") lacks " + missing + "; reinstall or update the driver.");
}

std::string Driver::describe(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    return "CUDA error " + std::to_string(static_cast<int>(result));
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return std::string(name) + " (" + text + ")";
}

Status Driver::check(CUresult result, const std::string& what) const {
  if (result == CUDA_SUCCESS) return Status::ok();
  return {Code::kUnavailable, "CUDA cannot " + what + ": " + describe(result) + "."};
}

}  // namespace rueda::cuda
