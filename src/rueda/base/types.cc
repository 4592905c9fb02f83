#include "rueda/base/types.h"

#include <array>

#include "rueda/base/check.h"

namespace rueda {
namespace {

struct DTypeFacts {
  std::string_view name;
  size_t bytes;
  bool is_floating;
};

constexpr std::array<DTypeFacts, kDTypeCount> kFacts{{{"uint8", 1, false},
                                                      {"int8", 1, false},
                                                      {"uint16", 2, false},
                                                      {"int16", 2, false},
                                                      {"int32", 4, false},
                                                      {"int64", 8, false},
                                                      {"float16", 2, true},
                                                      {"float32", 4, true},
                                                      {"float64", 8, true},
                                                      {"bool", 1, false},
                                                      {"bfloat16", 2, true}}};

const DTypeFacts& facts(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  RUEDA_CHECK(index < kFacts.size(), "a dtype was not validated where it entered");
  return kFacts[index];
}

}  // namespace

size_t size_of(DType dtype) { return facts(dtype).bytes; }
std::string_view name_of(DType dtype) { return facts(dtype).name; }
bool is_floating(DType dtype) { return facts(dtype).is_floating; }
bool is_16bit_float(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBfloat16; }
DType accumulator_of(DType dtype) { return is_16bit_float(dtype) ? DType::kFloat32 : dtype; }

std::string_view name_of(Collective what) {
  switch (what) {
    case Collective::kAllreduce:
      return "ALLREDUCE";
    case Collective::kAllgather:
      return "ALLGATHER";
    case Collective::kBroadcast:
      return "BROADCAST";
    case Collective::kJoin:
      return "JOIN";
    case Collective::kAlltoall:
      return "ALLTOALL";
    case Collective::kBarrier:
      return "BARRIER";
    case Collective::kReducescatter:
      return "REDUCESCATTER";
  }
  return "UNKNOWN";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAverage:
      return "Average";
    case ReduceOp::kSum:
      return "Sum";
    case ReduceOp::kAdasum:
      return "Adasum";
    case ReduceOp::kMin:
      return "Min";
    case ReduceOp::kMax:
      return "Max";
    case ReduceOp::kProduct:
      return "Product";
  }
  return "unknown";
}

std::string_view name_of(Wire wire) {
  switch (wire) {
    case Wire::kExact:
      return "float32";
    case Wire::kBfloat16:
      return "bf16";
    case Wire::kFloat16:
      return "fp16";
    case Wire::kInt8:
      return "int8";
  }
  return "unknown";
}

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kHost:
      return "host";
    case MemoryKind::kShared:
      return "shared";
    case MemoryKind::kDevice:
      return "device";
  }
  return "unknown";
}

std::string shape_string(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace rueda
