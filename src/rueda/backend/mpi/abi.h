// The binary interfaces of MPI. The standard names handles and constants, but up to MPI 4 every library chose
// their values. We need no mpi.h: three sets of values serve the libraries in use.
//
// Sources: MPI 5.0, appendix A (the standard ABI); mpi.h of MPICH 4 and 5, whose values Intel MPI, MVAPICH
// and Cray MPICH share; mpi.h of Open MPI 4 and 5, where predefined handles are addresses of exported
// variables.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rueda/base/types.h"

namespace rueda::backend::mpi {

enum class Flavor : uint8_t { kStandard, kOpenMpi, kMpich };

// A handle of any library: an int in MPICH's family, a pointer elsewhere.
using Handle = uintptr_t;

// inout[i] = in[i] op inout[i]. datatype is not used: each of our functions is made for one type.
using ReduceFunction = void(void* in, void* inout, int* count, void* datatype);

// The element types that reductions and copies use. 16-bit floats and booleans travel as integers.
enum class Type : uint8_t { kInt8, kUint8, kInt16, kUint16, kInt32, kInt64, kFloat, kDouble };
inline constexpr size_t kTypes = 8;
enum class BuiltinOp : uint8_t { kSum, kMin, kMax, kProduct };
inline constexpr size_t kBuiltinOps = 4;

// Thread levels in the order of the standard.
enum class ThreadLevel : uint8_t { kSingle, kFunneled, kSerialized, kMultiple };
std::string_view name_of(ThreadLevel level);  // "MPI_THREAD_MULTIPLE"

struct Abi {
  Handle comm_world = 0, request_null = 0, errors_return = 0;
  std::array<Handle, kTypes> types = {};
  std::array<Handle, kBuiltinOps> ops = {};
  uintptr_t in_place = 0, status_ignore = 0;
  // These are the values of Open MPI and MPICH.
  std::array<int, 4> thread_levels = {0, 1, 2, 3};
  int ident = 0, congruent = 1;  // results of MPI_Comm_compare
};

// Open MPI: without the handles, which are addresses in the loaded library.
Abi abi_of(Flavor flavor);

// The variables behind the handles of Open MPI.
struct OpenMpiSymbols {
  std::string_view comm_world, request_null, errors_return;
  std::array<std::string_view, kTypes> types;
  std::array<std::string_view, kBuiltinOps> ops;
};
const OpenMpiSymbols& open_mpi_symbols();

Type type_of(DType dtype);
// Whether every library reduces such elements as we do. None knows 16-bit floats, and what the minimum of a
// number and NaN is, is left open. Of small integers, Open MPI 4.1 and 5.0 saturate sums instead of wrapping
// around, and MPICH 4.0.2 takes unsigned bytes for signed ones in minima.
bool is_builtin(ReduceOp op, DType dtype);
BuiltinOp builtin_of(ReduceOp op);

}  // namespace rueda::backend::mpi
