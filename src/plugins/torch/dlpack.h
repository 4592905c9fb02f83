// The part of DLPack that the hook of gradients uses: a tensor as numbers, and the table of C functions by
// which a framework gives it (DLPack 1.2 and later, dlpack.h of github.com/dmlc/dlpack). torch has the table
// since 2.10, as torch.Tensor.__dlpack_c_exchange_api__.
#pragma once

#include <cstdint>

namespace rueda::torch {

enum class DlpackType : uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kBool = 6 };
enum class DlpackDevice : int32_t { kCpu = 1, kCuda = 2 };

struct DlpackTensor {
  void* data = nullptr;
  DlpackDevice device_type{};
  int32_t device = 0;
  int32_t ndim = 0;
  DlpackType code{};
  uint8_t bits = 0;
  uint16_t lanes = 0;
  int64_t* shape = nullptr;
  int64_t* strides = nullptr;  // in elements; null: contiguous
  uint64_t byte_offset = 0;
};
static_assert(sizeof(DlpackTensor) == 48);

struct DlpackExchange {
  uint32_t major = 0;
  uint32_t minor = 0;
  const DlpackExchange* older = nullptr;
  void* allocate = nullptr;
  void* to_managed = nullptr;
  void* from_managed = nullptr;
  // Fills `tensor`, whose shape and strides belong to the object; -1 with an exception where it cannot.
  int (*to_tensor)(void* object, DlpackTensor* tensor) = nullptr;
  int (*current_stream)(int32_t device_type, int32_t device, void** stream) = nullptr;
};
inline constexpr uint32_t kDlpackMajor = 1;
inline constexpr const char* kDlpackExchangeName = "dlpack_exchange_api";  // of its capsule

}  // namespace rueda::torch
