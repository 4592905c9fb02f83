#include "rueda/backend/mpi/reduce_functions.h"

#include "rueda/base/check.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend::mpi {
namespace {

// MPI's order: inout = in op inout.
template <ReduceOp op, DType dtype>
void reduce(void* in, void* inout, int* count, void* /*datatype*/) {
  kernels::reduce(op, dtype, in, inout, inout, static_cast<size_t>(*count));
}

template <DType dtype>
ReduceFunction* function_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return reduce<ReduceOp::kMin, dtype>;
    case ReduceOp::kMax:
      return reduce<ReduceOp::kMax, dtype>;
    case ReduceOp::kProduct:
      return reduce<ReduceOp::kProduct, dtype>;
    default:
      return reduce<ReduceOp::kSum, dtype>;
  }
}

ReduceFunction* function_of(ReduceOp op, DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return function_of<DType::kUint8>(op);
    case DType::kInt8:
      return function_of<DType::kInt8>(op);
    case DType::kUint16:
      return function_of<DType::kUint16>(op);
    case DType::kInt16:
      return function_of<DType::kInt16>(op);
    case DType::kFloat16:
      return function_of<DType::kFloat16>(op);
    case DType::kBfloat16:
      return function_of<DType::kBfloat16>(op);
    case DType::kFloat32:
      return function_of<DType::kFloat32>(op);
    case DType::kFloat64:
      return function_of<DType::kFloat64>(op);
    case DType::kBool:
      return function_of<DType::kBool>(op);
    default:
      RUEDA_CHECK(false, "MPI reduces large integers itself");
      return nullptr;
  }
}

}  // namespace

Result<Op> ReduceOps::find(Library& library, ReduceOp op, DType dtype) {
  if (is_builtin(op, dtype)) return library.builtin(builtin_of(op));
  const auto at = made_.find({op, dtype});
  if (at != made_.end()) return at->second;
  const Result<Op> made = library.make_op(function_of(op, dtype));
  if (made.is_ok()) made_[{op, dtype}] = made.value();
  return made;
}

}  // namespace rueda::backend::mpi
