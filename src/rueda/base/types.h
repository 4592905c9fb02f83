// The basic types: ranks, element types, collectives, groups. Values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rueda {

struct Status;

using Rank = int32_t;   // index within a Group unless a name says "world"
using Epoch = int64_t;  // counts the connected lives of a world: every init begins a new one

// The numbers are part of the C ABI: append only.
enum class DType : uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBool = 9,
  kBfloat16 = 10,
};
inline constexpr int kDTypeCount = 11;
// count_of: how many values an enum has, which are numbered from 0. Messages are checked against it.
constexpr int count_of(DType /*dtype*/) { return kDTypeCount; }

size_t size_of(DType dtype);            // bytes of one element
std::string_view name_of(DType dtype);  // "float32"
bool is_floating(DType dtype);
bool is_16bit_float(DType dtype);  // float16 and bfloat16
// The type of partial sums: float32 for 16-bit floats, otherwise the type itself.
DType accumulator_of(DType dtype);

enum class Collective : uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kJoin = 3,
  kAlltoall = 4,
  kBarrier = 5,
  kReducescatter = 6,
};
constexpr int count_of(Collective /*what*/) { return static_cast<int>(Collective::kReducescatter) + 1; }
// "ALLREDUCE", as in timelines and mismatch texts. Adasum has a name of its own there.
std::string_view name_of(Collective what);
constexpr bool is_reduction(Collective what) {
  return what == Collective::kAllreduce || what == Collective::kReducescatter;
}

// The numbers are those of the public constants of Horovod.
enum class ReduceOp : uint8_t { kAverage = 0, kSum = 1, kAdasum = 2, kMin = 3, kMax = 4, kProduct = 5 };
constexpr int count_of(ReduceOp /*op*/) { return static_cast<int>(ReduceOp::kProduct) + 1; }
std::string_view name_of(ReduceOp op);

// How sums of float32 travel between hosts; inside a host they are always exact. The 16-bit types and int8
// are encoded in blocks of kWireBlock elements, int8 with a float32 scale for each block.
enum class Wire : uint8_t { kExact = 0, kBfloat16 = 1, kFloat16 = 2, kInt8 = 3 };
constexpr int count_of(Wire /*wire*/) { return static_cast<int>(Wire::kInt8) + 1; }
std::string_view name_of(Wire wire);  // "float32", "bf16", "fp16", "int8"
inline constexpr int64_t kWireBlock = 256;
// Bytes of one encoded block.
constexpr int64_t wire_block_bytes(Wire wire) {
  constexpr int64_t kScaleBytes = 4;
  return wire == Wire::kInt8 ? kWireBlock + kScaleBytes : kWireBlock * (wire == Wire::kExact ? 4 : 2);
}

// Ranks that run collectives together. It never changes. members are world ranks in ascending order.
struct Group {
  int32_t id = 0;  // 0 = the world
  Epoch epoch = 0;
  std::vector<Rank> members;
  Rank me = -1;  // my index in members; -1 if I am not a member

  [[nodiscard]] Rank size() const { return static_cast<Rank>(members.size()); }
  [[nodiscard]] bool is_member() const { return me >= 0; }
};

// Where the bytes of a tensor are. The numbers are part of the C ABI: append only.
enum class MemoryKind : uint8_t {
  kHost = 0,    // private memory of this process
  kShared = 1,  // host memory that all ranks of the host map
  kDevice = 2,  // memory of an accelerator
};
constexpr int count_of(MemoryKind /*kind*/) { return static_cast<int>(MemoryKind::kDevice) + 1; }
std::string_view name_of(MemoryKind kind);  // "host"

// Where bytes are, and when they may be read.
struct Memory {
  MemoryKind kind = MemoryKind::kHost;
  int32_t device = -1;    // number of the accelerator; kDevice only
  void* ready = nullptr;  // kDevice: the event after which the bytes may be read; null = at once
  // kDevice: whether it can be waited for, or why not; then the tensor cannot be used. Null: nobody has
  // asked.
  const Status* checked = nullptr;

  bool operator==(const Memory&) const = default;
};

// How the elements of a finished reduction are scaled: y = x / divisor * factor, before rounding to the
// element type. Integers with factor 1 divide exactly; with another factor they go through float64; both
// truncate to zero.
struct Scale {
  double factor = 1.0;
  int64_t divisor = 1;

  [[nodiscard]] bool is_identity() const { return factor == 1.0 && divisor == 1; }
  bool operator==(const Scale&) const = default;
};

// How a call is carried out where that changes no bit, as control/tuner finds out. Those who hand it on need
// not know what the numbers mean.
struct CallTuning {
  uint8_t algorithm = 0;    // schedule::choose() says which; 0: the cost model chooses
  int64_t chunk_bytes = 0;  // unit of pipelining; 0: as set

  auto operator<=>(const CallTuning&) const = default;
};
inline constexpr int64_t kLeastChunkBytes = 1 << 10, kMostChunkBytes = 1 << 30;

std::string shape_string(const std::vector<int64_t>& shape);  // "[2, 3]"

}  // namespace rueda
