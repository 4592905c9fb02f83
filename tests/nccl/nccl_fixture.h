// What C++ tests need to work with the tests' libnccl.
#pragma once

#include <dlfcn.h>

#include "control.h"
#include "rueda/base/check.h"

namespace rueda::nccl_test {

inline constexpr const char* kLibrary = RUEDA_FAKE_NCCL "/libnccl.so.2";
inline constexpr const char* kPartialLibrary = RUEDA_FAKE_NCCL "/libnccl_partial.so.2";

inline fake_nccl::Control& control() {
  static fake_nccl::Control* const one = [] {
    void* const library = dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL);
    RUEDA_CHECK(library != nullptr, "the tests' libnccl is built with the tests");
    return reinterpret_cast<fake_nccl::ControlFunction>(dlsym(library, fake_nccl::kControlName))();
  }();
  return *one;
}

}  // namespace rueda::nccl_test
