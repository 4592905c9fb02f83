// The names of the ways to run collectives on tensors in GPU memory, best first; the table in runtime/gpu.cc
// has a row for each. RUEDA_GPU_OPERATIONS accepts these, and kThroughMpi.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace rueda {

inline constexpr std::array<std::string_view, 2> kGpuOperations = {"nccl", "staged"};

// Given to MPI if it takes CUDA memory on all ranks, else staged. Init refuses if host memory does not go
// through MPI.
inline constexpr std::string_view kThroughMpi = "mpi";

constexpr bool is_gpu_operations(std::string_view name) {
  return name == kThroughMpi || std::ranges::find(kGpuOperations, name) != kGpuOperations.end();
}

// "a|b|mpi" with a bar between them.
inline std::string all_gpu_operations(std::string_view between) {
  std::string text;
  for (const std::string_view name : kGpuOperations) text.append(name).append(between);
  return text.append(kThroughMpi);
}

}  // namespace rueda
