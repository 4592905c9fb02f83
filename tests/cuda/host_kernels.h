// The kernels of rueda, compiled for the host and found by name.
#pragma once

#include <functional>
#include <string>

namespace fake_cuda {

struct Grid {
  unsigned blocks = 1, threads = 1;
};

// A kernel takes a copy of its arguments and returns what runs all of its threads.
using HostKernel = std::function<std::function<void()>(Grid grid, void** arguments)>;

const HostKernel* find_kernel(const std::string& name);  // null if there is none

}  // namespace fake_cuda
