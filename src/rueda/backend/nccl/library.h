// libnccl.so.2, found at run time. rueda brings no NCCL of its own and is not linked with it: a second copy
// in a process that has one (torch and JAX load theirs) would take device memory and threads of its own. Any
// thread; immutable once opened. The library is never unloaded.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/backend/nccl/abi.h"
#include "rueda/base/status.h"

namespace rueda::nccl {

// "2.18.1"
std::string version_text(int version);

// Where the wheel of NVIDIA's NCCL lies beside this library: in the same site-packages. Pure.
std::vector<std::string> wheel_paths(std::string_view path_of_this_library);

class Library {
 public:
  // path: the setting, or empty: the copy that is loaded already, that of the nvidia-nccl wheel, that of
  // the system, in this order. Fails with one sentence if there is none, or if it is too old or lacks a
  // function.
  static Result<std::shared_ptr<const Library>> open(const std::string& path);

  // The version of the library that open() would take. A library that was not loaded before is not loaded
  // afterwards, so that a framework that is imported later still brings its own.
  static Result<int> version_at(const std::string& path);

  [[nodiscard]] const Functions& call() const { return functions_; }
  [[nodiscard]] int version() const { return version_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // Ok for kSuccess and kInProgress. Otherwise what NCCL says. comm may be null.
  [[nodiscard]] Status check(ResultCode result, std::string_view function, CommHandle comm = nullptr) const;

 private:
  // handle: of the loader, or null with its error.
  static Result<std::shared_ptr<const Library>> use(void* handle, const std::string& error,
                                                    const std::string& path);

  Functions functions_;
  int version_ = 0;
  std::string path_;
};

}  // namespace rueda::nccl
