// The names of the ways to run collectives on tensors in GPU memory, best first. RUEDA_GPU_OPERATIONS accepts
// these; the table in runtime/gpu.cc has a row for each.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace rueda {

inline constexpr std::array<std::string_view, 2> kGpuOperations = {"nccl", "staged"};

constexpr bool is_gpu_operations(std::string_view name) {
  return std::ranges::find(kGpuOperations, name) != kGpuOperations.end();
}

// "a|b" with a bar between them.
inline std::string all_gpu_operations(std::string_view between) {
  std::string text;
  for (const std::string_view name : kGpuOperations)
    text.append(text.empty() ? std::string_view() : between).append(name);
  return text;
}

}  // namespace rueda
