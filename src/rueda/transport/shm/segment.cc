#include "rueda/transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace rueda::transport {
namespace {

constexpr size_t kControlBytes = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
static_assert(sizeof(Segment::Control) <= kControlBytes);

Status fault(const std::string& what) {
  return {Code::kUnavailable, "cannot " + what + " shared memory: " + std::strerror(errno) + "."};
}

}  // namespace

Result<Segment> Segment::create(size_t ring_bytes) {
  RUEDA_CHECK(std::has_single_bit(ring_bytes) && ring_bytes >= kMinRingBytes && ring_bytes <= kMaxRingBytes,
              "a ring has a power of two of bytes");
  Segment self;
  self.memory_ = UniqueFd(memfd_create("rueda", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!self.memory_.is_open()) return fault("create");
  if (ftruncate(self.memory_.get(), static_cast<off_t>(kControlBytes + 2 * ring_bytes)) != 0)
    return fault("size");
  if (fcntl(self.memory_.get(), F_ADD_SEALS, kSeals) != 0) return fault("seal");
  if (Status status = self.map(ring_bytes); !status.is_ok()) return status;
  return self;
}

Result<Segment> Segment::adopt(UniqueFd memory) {
  const auto denied = [](const char* what) {
    return Status(Code::kPermissionDenied, std::string("the peer sent memory that ") + what + ".");
  };
  struct stat info {};
  if (fstat(memory.get(), &info) != 0) return fault("examine");
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return denied("is not sealed");
  const auto size = static_cast<size_t>(info.st_size);
  const size_t ring_bytes = size < kControlBytes ? 0 : (size - kControlBytes) / 2;
  if (!std::has_single_bit(ring_bytes) || ring_bytes < kMinRingBytes || ring_bytes > kMaxRingBytes ||
      size != kControlBytes + 2 * ring_bytes)
    return denied("has an impossible size");
  Segment self;
  self.memory_ = std::move(memory);
  if (Status status = self.map(ring_bytes); !status.is_ok()) return status;
  return self;
}

Segment& Segment::operator=(Segment&& other) noexcept {
  if (this != &other) {
    unmap();
    memory_ = std::move(other.memory_);
    base_ = std::exchange(other.base_, nullptr);
    ring_bytes_ = std::exchange(other.ring_bytes_, 0);
  }
  return *this;
}

std::span<std::byte> Segment::ring(int index) const {
  return {base_ + kControlBytes + static_cast<size_t>(index) * ring_bytes_, ring_bytes_};
}

// Not populated: most pairs of a large host never exchange data, and untouched pages cost nothing.
Status Segment::map(size_t ring_bytes) {
  void* mapped =
      mmap(nullptr, kControlBytes + 2 * ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
  if (mapped == MAP_FAILED) return fault("map");
  base_ = static_cast<std::byte*>(mapped);
  ring_bytes_ = ring_bytes;
  return Status::ok();
}

void Segment::unmap() {
  if (base_ != nullptr) munmap(base_, kControlBytes + 2 * ring_bytes_);
  base_ = nullptr;
}

}  // namespace rueda::transport
