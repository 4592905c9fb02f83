#include "rueda/transport/shm/ring_mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "rueda/base/memory_file.h"

namespace rueda::transport {
namespace {

constexpr size_t kControlBytes = 4096;
static_assert(sizeof(RingMapping::Control) <= kControlBytes);

Status fault(const std::string& what) {
  return {Code::kUnavailable, "cannot " + what + " shared memory: " + std::strerror(errno) + "."};
}

}  // namespace

Result<RingMapping> RingMapping::create(size_t ring_bytes) {
  RUEDA_CHECK(std::has_single_bit(ring_bytes) && ring_bytes >= kMinRingBytes && ring_bytes <= kMaxRingBytes,
              "the bytes of a ring are a power of two");
  Result<UniqueFd> memory = make_memory_file(kControlBytes + 2 * ring_bytes);
  if (!memory.is_ok()) return memory.status();
  RingMapping self;
  self.memory_ = std::move(memory).value();
  if (Status status = self.map(ring_bytes); !status.is_ok()) return status;
  return self;
}

Result<RingMapping> RingMapping::adopt(UniqueFd memory) {
  const auto denied = [](const char* what) {
    return Status(Code::kPermissionDenied, std::string("the peer sent memory that ") + what + ".");
  };
  struct stat info {};
  if (fstat(memory.get(), &info) != 0) return fault("examine");
  if (!is_sealed_memory(memory.get())) return denied("is not sealed");
  const auto size = static_cast<size_t>(info.st_size);
  const size_t ring_bytes = size < kControlBytes ? 0 : (size - kControlBytes) / 2;
  if (!std::has_single_bit(ring_bytes) || ring_bytes < kMinRingBytes || ring_bytes > kMaxRingBytes ||
      size != kControlBytes + 2 * ring_bytes)
    return denied("has an impossible size");
  RingMapping self;
  self.memory_ = std::move(memory);
  if (Status status = self.map(ring_bytes); !status.is_ok()) return status;
  return self;
}

RingMapping& RingMapping::operator=(RingMapping&& other) noexcept {
  if (this != &other) {
    unmap();
    memory_ = std::move(other.memory_);
    base_ = std::exchange(other.base_, nullptr);
    ring_bytes_ = std::exchange(other.ring_bytes_, 0);
  }
  return *this;
}

std::span<std::byte> RingMapping::ring(int index) const {
  return {base_ + kControlBytes + static_cast<size_t>(index) * ring_bytes_, ring_bytes_};
}

// The pages are not touched here, because most pairs of ranks on a large host never exchange data, and
// untouched pages cost nothing.
Status RingMapping::map(size_t ring_bytes) {
  void* mapped =
      mmap(nullptr, kControlBytes + 2 * ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
  if (mapped == MAP_FAILED) return fault("map");
  base_ = static_cast<std::byte*>(mapped);
  ring_bytes_ = ring_bytes;
  return Status::ok();
}

void RingMapping::unmap() {
  if (base_ != nullptr) munmap(base_, kControlBytes + 2 * ring_bytes_);
  base_ = nullptr;
}

}  // namespace rueda::transport
