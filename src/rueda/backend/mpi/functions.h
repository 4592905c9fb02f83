// The functions of MPI that are used, as C declares them, found in a library at run time.
#pragma once

#include <dlfcn.h>

#include <string>

#include "rueda/backend/mpi/abi.h"

namespace rueda::backend::mpi {

// H: the type of a handle.
template <class H>
struct Functions {
  static_assert(sizeof(H) <= sizeof(Handle));
  int (*initialized)(int*) = nullptr;
  int (*finalized)(int*) = nullptr;
  int (*init_thread)(int*, char***, int, int*) = nullptr;
  int (*query_thread)(int*) = nullptr;
  int (*finalize)() = nullptr;
  int (*comm_rank)(H, int*) = nullptr;
  int (*comm_size)(H, int*) = nullptr;
  int (*comm_compare)(H, H, int*) = nullptr;
  int (*comm_idup)(H, H*, H*) = nullptr;
  int (*comm_group)(H, H*) = nullptr;
  int (*group_incl)(H, int, const int*, H*) = nullptr;
  int (*group_free)(H*) = nullptr;
  int (*comm_create_group)(H, H, int, H*) = nullptr;
  int (*comm_free)(H*) = nullptr;
  int (*comm_set_errhandler)(H, H) = nullptr;
  int (*error_string)(int, char*, int*) = nullptr;
  int (*test)(H*, int*, void*) = nullptr;
  int (*op_create)(ReduceFunction*, int, H*) = nullptr;
  int (*iallreduce)(const void*, void*, int, H, H, H, H*) = nullptr;
  int (*ireduce)(const void*, void*, int, H, H, int, H, H*) = nullptr;
  int (*ireduce_scatter)(const void*, void*, const int*, H, H, H, H*) = nullptr;
  int (*iallgatherv)(const void*, int, H, void*, const int*, const int*, H, H, H*) = nullptr;
  int (*ialltoallv)(const void*, const int*, const int*, H, void*, const int*, const int*, H, H,
                    H*) = nullptr;
  int (*ibcast)(void*, int, H, int, H, H*) = nullptr;
  int (*isend)(const void*, int, H, int, int, H, H*) = nullptr;
  int (*irecv)(void*, int, H, int, int, H, H*) = nullptr;
  int (*ibarrier)(H, H*) = nullptr;
  int (*allreduce)(const void*, void*, int, H, H, H) = nullptr;
  int (*reduce_scatter)(const void*, void*, const int*, H, H, H) = nullptr;
  int (*allgatherv)(const void*, int, H, void*, const int*, const int*, H, H) = nullptr;
  int (*alltoallv)(const void*, const int*, const int*, H, void*, const int*, const int*, H, H) = nullptr;
  int (*bcast)(void*, int, H, int, H) = nullptr;
};

// Looks functions up and remembers the first that is missing.
class Lookup {
 public:
  explicit Lookup(void* library) : library_(library) {}

  template <class F>
  void operator()(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

template <class H>
void look_up(Lookup& find, Functions<H>& mpi) {
  find(mpi.initialized, "MPI_Initialized");
  find(mpi.finalized, "MPI_Finalized");
  find(mpi.init_thread, "MPI_Init_thread");
  find(mpi.query_thread, "MPI_Query_thread");
  find(mpi.finalize, "MPI_Finalize");
  find(mpi.comm_rank, "MPI_Comm_rank");
  find(mpi.comm_size, "MPI_Comm_size");
  find(mpi.comm_compare, "MPI_Comm_compare");
  find(mpi.comm_idup, "MPI_Comm_idup");
  find(mpi.comm_group, "MPI_Comm_group");
  find(mpi.group_incl, "MPI_Group_incl");
  find(mpi.group_free, "MPI_Group_free");
  find(mpi.comm_create_group, "MPI_Comm_create_group");
  find(mpi.comm_free, "MPI_Comm_free");
  find(mpi.comm_set_errhandler, "MPI_Comm_set_errhandler");
  find(mpi.error_string, "MPI_Error_string");
  find(mpi.test, "MPI_Test");
  find(mpi.op_create, "MPI_Op_create");
  find(mpi.iallreduce, "MPI_Iallreduce");
  find(mpi.ireduce, "MPI_Ireduce");
  find(mpi.ireduce_scatter, "MPI_Ireduce_scatter");
  find(mpi.iallgatherv, "MPI_Iallgatherv");
  find(mpi.ialltoallv, "MPI_Ialltoallv");
  find(mpi.ibcast, "MPI_Ibcast");
  find(mpi.isend, "MPI_Isend");
  find(mpi.irecv, "MPI_Irecv");
  find(mpi.ibarrier, "MPI_Ibarrier");
  find(mpi.allreduce, "MPI_Allreduce");
  find(mpi.reduce_scatter, "MPI_Reduce_scatter");
  find(mpi.allgatherv, "MPI_Allgatherv");
  find(mpi.alltoallv, "MPI_Alltoallv");
  find(mpi.bcast, "MPI_Bcast");
}

}  // namespace rueda::backend::mpi
