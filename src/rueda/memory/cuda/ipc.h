// Device memory that another process of this machine maps (CUDA IPC). Any thread.
//
// CUDA leaves it undefined what happens if the owner frees memory that another process still maps, and ranks
// end an epoch without waiting for one another. So exported memory is never freed: after an epoch it is
// parked, and the next epoch takes it again. A process keeps one piece for each device and use.
#pragma once

#include <cstddef>
#include <memory>

#include "rueda/base/status.h"
#include "rueda/memory/cuda/buffers.h"

namespace rueda::cuda {

class ExportedMemory {
 public:
  // At least `bytes`, from cuMemAlloc or parked by an earlier epoch. kUnavailable: the device has no memory
  // left; kUnsupported: its memory cannot be exported.
  static Result<ExportedMemory> create(std::shared_ptr<const Device> device, size_t bytes);
  ExportedMemory();
  ~ExportedMemory();
  ExportedMemory(ExportedMemory&&) noexcept;
  ExportedMemory& operator=(ExportedMemory&&) noexcept;

  [[nodiscard]] std::byte* data() const;
  [[nodiscard]] size_t bytes() const;
  [[nodiscard]] const CUipcMemHandle& handle() const;
  // Another process or a device may still use it: nobody takes it again.
  void abandon();

 private:
  struct Piece;
  explicit ExportedMemory(std::unique_ptr<Piece> piece);
  std::unique_ptr<Piece> piece_;
};

// Memory that another process has exported, while it is mapped here.
class MappedMemory {
 public:
  static Result<MappedMemory> open(std::shared_ptr<const Device> device, const CUipcMemHandle& handle);
  MappedMemory() = default;
  ~MappedMemory();
  MappedMemory(MappedMemory&& other) noexcept { *this = std::move(other); }
  MappedMemory& operator=(MappedMemory&& other) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::shared_ptr<const Device> device_;
  std::byte* data_ = nullptr;
};

}  // namespace rueda::cuda
