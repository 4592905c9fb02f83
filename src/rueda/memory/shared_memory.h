// Anonymous memory that several processes map. It has no name in any file system, so it cannot be left
// behind. Its size is sealed, so no process can remove pages that another one uses.
#pragma once

#include <cstddef>
#include <span>

#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::memory {

class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Filled with zeros. A page takes memory only once it is touched, so a large size costs only address space.
  static Result<SharedMemory> create(size_t bytes);
  // Maps what another process created, after checking that its size is sealed and within [least, most].
  static Result<SharedMemory> adopt(UniqueFd memory, size_t least, size_t most);

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  [[nodiscard]] int fd() const { return memory_.get(); }  // -1 after close_fd()
  void close_fd() { memory_.reset(); }                    // the mapping stays
  // Whether the range lies inside this memory; the offset of an address in it.
  [[nodiscard]] bool holds(const void* begin, size_t bytes) const;
  [[nodiscard]] size_t offset_of(const void* at) const {
    return static_cast<size_t>(static_cast<const std::byte*>(at) - base_);
  }

 private:
  Status map(size_t bytes);
  void unmap();

  UniqueFd memory_;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace rueda::memory
