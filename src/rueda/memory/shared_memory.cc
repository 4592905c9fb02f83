#include "rueda/memory/shared_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "rueda/base/memory_file.h"

namespace rueda::memory {
namespace {

Status cannot_map(size_t bytes) {
  return {Code::kUnavailable,
          "cannot map " + std::to_string(bytes) + " bytes of shared memory: " + std::strerror(errno) + "."};
}

}  // namespace

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    unmap();
    memory_ = std::move(other.memory_);
    base_ = std::exchange(other.base_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

SharedMemory::~SharedMemory() { unmap(); }

Result<SharedMemory> SharedMemory::create(size_t bytes) {
  Result<UniqueFd> memory = make_memory_file(bytes);
  if (!memory.is_ok()) return memory.status();
  SharedMemory self;
  self.memory_ = std::move(memory).value();
  if (Status status = self.map(bytes); !status.is_ok()) return status;
  return self;
}

Result<SharedMemory> SharedMemory::adopt(UniqueFd memory, size_t least, size_t most) {
  const auto denied = [](const char* what) {
    return Status(Code::kPermissionDenied, std::string("a peer sent memory that ") + what + ".");
  };
  struct stat info {};
  if (!memory.is_open() || fstat(memory.get(), &info) != 0) return denied("cannot be examined");
  if (!is_sealed_memory(memory.get())) return denied("is not sealed");
  const auto bytes = static_cast<size_t>(info.st_size);
  if (bytes < least || bytes > most) return denied("has an impossible size");
  SharedMemory self;
  self.memory_ = std::move(memory);
  if (Status status = self.map(bytes); !status.is_ok()) return status;
  return self;
}

bool SharedMemory::holds(const void* begin, size_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  const auto base = reinterpret_cast<uintptr_t>(base_);
  return base_ != nullptr && at >= base && at - base <= bytes_ && bytes <= bytes_ - (at - base);
}

// Excluded from core dumps, because an arena is as large as the machine's memory.
Status SharedMemory::map(size_t bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_.get(), 0);
  if (mapped == MAP_FAILED) return cannot_map(bytes);
  base_ = static_cast<std::byte*>(mapped);
  bytes_ = bytes;
  madvise(mapped, bytes, MADV_DONTDUMP);
  madvise(mapped, bytes, MADV_HUGEPAGE);  // may fail: many hosts have no huge pages for shared memory
  return Status::ok();
}

void SharedMemory::unmap() {
  if (base_ != nullptr) munmap(base_, bytes_);
  base_ = nullptr;
}

}  // namespace rueda::memory
