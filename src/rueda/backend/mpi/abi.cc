#include "rueda/backend/mpi/abi.h"

#include "rueda/base/check.h"

namespace rueda::backend::mpi {
namespace {

constexpr Abi kStandardAbi{
    .comm_world = 0x101,
    .request_null = 0x180,
    .errors_return = 0x142,
    .types = {0x240, 0x241, 0x248, 0x249, 0x250, 0x258, 0x210, 0x214},
    .ops = {0x21, 0x22, 0x23, 0x24},
    .in_place = 1,
    .status_ignore = 0,
    .thread_levels = {0, 1024, 2048, 4096},
    .ident = 201,
    .congruent = 202,
};

constexpr Abi kMpichAbi{
    .comm_world = 0x44000000,
    .request_null = 0x2c000000,
    .errors_return = 0x54000001,
    .types = {0x4c000137, 0x4c00013b, 0x4c000238, 0x4c00023c, 0x4c000439, 0x4c00083a, 0x4c00040a, 0x4c00080b},
    .ops = {0x58000003, 0x58000002, 0x58000001, 0x58000004},
    .in_place = UINTPTR_MAX,  // (void*)-1
    .status_ignore = 1,
};

constexpr Abi kOpenMpiAbi{
    .in_place = 1,
    .status_ignore = 0,
};

constexpr OpenMpiSymbols kOpenMpiSymbols{
    .comm_world = "ompi_mpi_comm_world",
    .request_null = "ompi_request_null",
    .errors_return = "ompi_mpi_errors_return",
    .types = {"ompi_mpi_int8_t", "ompi_mpi_uint8_t", "ompi_mpi_int16_t", "ompi_mpi_uint16_t",
              "ompi_mpi_int32_t", "ompi_mpi_int64_t", "ompi_mpi_float", "ompi_mpi_double"},
    .ops = {"ompi_mpi_op_sum", "ompi_mpi_op_min", "ompi_mpi_op_max", "ompi_mpi_op_prod"},
};

}  // namespace

std::string_view name_of(ThreadLevel level) {
  constexpr std::array<std::string_view, 4> kNames = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED",
                                                      "MPI_THREAD_SERIALIZED", "MPI_THREAD_MULTIPLE"};
  return kNames[static_cast<size_t>(level)];
}

Abi abi_of(Flavor flavor) {
  if (flavor == Flavor::kStandard) return kStandardAbi;
  return flavor == Flavor::kMpich ? kMpichAbi : kOpenMpiAbi;
}

const OpenMpiSymbols& open_mpi_symbols() { return kOpenMpiSymbols; }

Type type_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return Type::kInt8;
    case DType::kUint8:
    case DType::kBool:
      return Type::kUint8;
    case DType::kInt16:
      return Type::kInt16;
    case DType::kUint16:
    case DType::kFloat16:
    case DType::kBfloat16:
      return Type::kUint16;
    case DType::kInt32:
      return Type::kInt32;
    case DType::kInt64:
      return Type::kInt64;
    case DType::kFloat32:
      return Type::kFloat;
    case DType::kFloat64:
      return Type::kDouble;
  }
  RUEDA_CHECK(false, "every element type travels as a type of MPI");
  return Type::kUint8;
}

bool is_builtin(ReduceOp op, DType dtype) {
  if (size_of(dtype) < 4) return false;
  return !is_floating(dtype) || op == ReduceOp::kSum || op == ReduceOp::kProduct;
}

BuiltinOp builtin_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return BuiltinOp::kMin;
    case ReduceOp::kMax:
      return BuiltinOp::kMax;
    case ReduceOp::kProduct:
      return BuiltinOp::kProduct;
    default:
      return BuiltinOp::kSum;
  }
}

}  // namespace rueda::backend::mpi
