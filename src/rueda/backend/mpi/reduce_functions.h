// The reductions that MPI does not know, or that its libraries do not compute as we do (is_builtin): 16-bit
// floats (each addition in float32, rounded once to 16 bits), small integers, booleans, and minimum and
// maximum that propagate NaN. Our kernels compute them.
#pragma once

#include <map>
#include <utility>

#include "rueda/backend/mpi/library.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::backend::mpi {

class ReduceOps {
 public:
  // The operation of MPI for elements of this type; made at the first use and kept as long as the process.
  Result<Op> find(Library& library, ReduceOp op, DType dtype);

 private:
  std::map<std::pair<ReduceOp, DType>, Op> made_;
};

}  // namespace rueda::backend::mpi
