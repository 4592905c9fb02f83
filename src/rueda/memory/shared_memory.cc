#include "rueda/memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace rueda::memory {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status fault(const std::string& what, size_t bytes) {
  return {Code::kUnavailable, "cannot " + what + " " + std::to_string(bytes) +
                                  " bytes of shared memory: " + std::strerror(errno) + "."};
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
  SharedMemory self;
  self.memory_ = UniqueFd(memfd_create("rueda", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!self.memory_.is_open()) return fault("create", bytes);
  if (ftruncate(self.memory_.get(), static_cast<off_t>(bytes)) != 0) return fault("size", bytes);
  if (fcntl(self.memory_.get(), F_ADD_SEALS, kSeals) != 0) return fault("seal", bytes);
  if (Status status = self.map(bytes); !status.is_ok()) return status;
  return self;
}

Result<SharedMemory> SharedMemory::adopt(UniqueFd memory, size_t least, size_t most) {
  const auto denied = [](const char* what) {
    return Status(Code::kPermissionDenied, std::string("a peer sent memory that ") + what + ".");
  };
  struct stat info {};
  if (!memory.is_open() || fstat(memory.get(), &info) != 0) return denied("cannot be examined");
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return denied("is not sealed");
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

// Not in core dumps: an arena is as large as the machine's memory.
Status SharedMemory::map(size_t bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_.get(), 0);
  if (mapped == MAP_FAILED) return fault("map", bytes);
  base_ = static_cast<std::byte*>(mapped);
  bytes_ = bytes;
  madvise(mapped, bytes, MADV_DONTDUMP);
  madvise(mapped, bytes, MADV_HUGEPAGE);  // a wish: many hosts have no huge pages for shared memory
  return Status::ok();
}

void SharedMemory::unmap() {
  if (base_ != nullptr) munmap(base_, bytes_);
  base_ = nullptr;
}

}  // namespace rueda::memory
