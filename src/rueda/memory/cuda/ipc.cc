#include "rueda/memory/cuda/ipc.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "rueda/base/keep.h"

namespace rueda::cuda {
namespace {

// Smaller allocations may share a mapping with others, which would then be exported as well.
constexpr size_t kUnit = 2 << 20;

}  // namespace

struct ExportedMemory::Piece {
  std::shared_ptr<const Device> device;
  DeviceBuffer memory;
  CUipcMemHandle handle = {};
};

namespace {

// The pieces that nobody uses. Never destroyed.
template <class Piece>
struct Parked {
  std::mutex mutex;
  std::vector<std::unique_ptr<Piece>> pieces;
  static Parked& all() {
    static auto* const parked = new Parked;
    return *parked;
  }
};

}  // namespace

Result<ExportedMemory> ExportedMemory::create(std::shared_ptr<const Device> device, size_t bytes) {
  bytes = (bytes + kUnit - 1) / kUnit * kUnit;
  auto& parked = Parked<Piece>::all();
  {
    const std::lock_guard lock(parked.mutex);
    const auto found = std::ranges::find_if(parked.pieces, [&](const auto& piece) {
      return piece->device->context() == device->context() && piece->memory.bytes() == bytes;
    });
    if (found != parked.pieces.end()) {
      std::unique_ptr<Piece> piece = std::move(*found);
      parked.pieces.erase(found);
      return ExportedMemory(std::move(piece));
    }
  }
  auto piece = std::make_unique<Piece>();
  piece->device = device;
  Result<DeviceBuffer> memory = DeviceBuffer::allocate(device, bytes);
  if (!memory.is_ok()) return memory.status();
  piece->memory = std::move(memory).value();
  const ScopedContext current(*device);
  if (!current.status().is_ok()) return current.status();
  const Driver& driver = device->driver();
  const Status exported =
      driver.check(driver.cuIpcGetMemHandle(&piece->handle, address_of(piece->memory.data())),
                   "export memory of device " + std::to_string(device->ordinal()));
  if (!exported.is_ok()) return Status(Code::kUnsupported, exported.why);
  return ExportedMemory(std::move(piece));
}

ExportedMemory::ExportedMemory(std::unique_ptr<Piece> piece) : piece_(std::move(piece)) {}
ExportedMemory::ExportedMemory() = default;
ExportedMemory::ExportedMemory(ExportedMemory&&) noexcept = default;
ExportedMemory& ExportedMemory::operator=(ExportedMemory&& other) noexcept {
  std::swap(piece_, other.piece_);
  return *this;
}

ExportedMemory::~ExportedMemory() {
  if (piece_ == nullptr) return;
  auto& parked = Parked<Piece>::all();
  const std::lock_guard lock(parked.mutex);
  parked.pieces.push_back(std::move(piece_));
}

std::byte* ExportedMemory::data() const { return piece_ == nullptr ? nullptr : piece_->memory.data(); }
size_t ExportedMemory::bytes() const { return piece_ == nullptr ? 0 : piece_->memory.bytes(); }
const CUipcMemHandle& ExportedMemory::handle() const { return piece_->handle; }

void ExportedMemory::abandon() {
  if (piece_ != nullptr) keep_until_exit(std::shared_ptr<Piece>(std::move(piece_)));
}

Result<MappedMemory> MappedMemory::open(std::shared_ptr<const Device> device, const CUipcMemHandle& handle) {
  const ScopedContext current(*device);
  if (!current.status().is_ok()) return current.status();
  const Driver& driver = device->driver();
  CUdeviceptr address = 0;
  const Status opened = driver.check(driver.cuIpcOpenMemHandle(&address, handle, kIpcLazyPeerAccess),
                                     "map memory of another process");
  if (!opened.is_ok()) return opened;
  MappedMemory mapped;
  mapped.device_ = std::move(device);
  mapped.data_ = static_cast<std::byte*>(pointer_to(address));
  return mapped;
}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  return *this;
}

MappedMemory::~MappedMemory() {
  if (data_ == nullptr) return;
  const ScopedContext current(*device_);
  if (current.status().is_ok()) (void)device_->driver().cuIpcCloseMemHandle(address_of(data_));
}

}  // namespace rueda::cuda
