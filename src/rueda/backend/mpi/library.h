// An MPI library, loaded at run time. One interface for all of them: handles are numbers, failures are
// Status. No MPI header is needed to build this, and nothing is linked.
//
// The thread level decides who may call: with kSerialized one thread at a time, with kMultiple any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "rueda/backend/mpi/abi.h"
#include "rueda/base/status.h"

namespace rueda::backend::mpi {

struct Comm {
  Handle handle = 0;
};
struct Request {
  Handle handle = 0;
};
struct Op {
  Handle handle = 0;
};
// What an operation needs besides its buffers.
struct Terms {
  Comm comm;
  Type type = Type::kUint8;
  Op op = {};
  int peer = -1;  // the root, or the other rank
};
// One part for each rank: counts and displacements in elements.
struct InParts {
  const void* data = nullptr;
  const int* counts = nullptr;
  const int* begins = nullptr;
};
struct OutParts {
  void* data = nullptr;
  const int* counts = nullptr;
  const int* begins = nullptr;
};
// What a library says about itself, in the words of people: "Open MPI 4.1.4".
std::string short_version(const std::string& library_version);

class Library {
 public:
  virtual ~Library() = default;

  [[nodiscard]] const std::string& path() const { return path_; }        // of the file
  [[nodiscard]] const std::string& version() const { return version_; }  // "MPICH 4.0.2"
  [[nodiscard]] Flavor flavor() const { return flavor_; }
  // "MPICH 4.0.2 (/usr/lib/libmpich.so.12)"
  [[nodiscard]] std::string describe() const { return version_ + " (" + path_ + ")"; }

  // ---- life ----
  [[nodiscard]] virtual bool is_initialized() = 0;
  [[nodiscard]] virtual bool is_finalized() = 0;
  virtual Result<ThreadLevel> init(ThreadLevel wanted) = 0;  // what it grants
  [[nodiscard]] virtual ThreadLevel thread_level() = 0;
  virtual Status finalize() = 0;

  // ---- communicators ----
  [[nodiscard]] virtual Comm world() = 0;
  virtual Result<int> rank(Comm comm) = 0;
  virtual Result<int> size(Comm comm) = 0;
  // Whether both have the same ranks in the same order. Local.
  [[nodiscard]] virtual bool is_congruent(Comm one, Comm other) = 0;
  // Starts a duplicate. *copy is valid when the request is complete.
  virtual Status idup(Comm comm, Comm* copy, Request& request) = 0;
  // A communicator of these ranks of comm; blocks until all of them have called it.
  virtual Result<Comm> create_group(Comm comm, std::span<const int> ranks, int tag) = 0;
  virtual void free(Comm comm) = 0;
  // Failures of this communicator are returned. By default MPI would end the process.
  virtual Status return_errors(Comm comm) = 0;

  // ---- operations under way ----
  virtual Result<bool> test(Request& request) = 0;  // whether it is complete
  virtual Result<Op> make_op(ReduceFunction* function) = 0;
  [[nodiscard]] virtual Op builtin(BuiltinOp op) = 0;

  // Counts are in elements. Buffers and arrays are borrowed until the request is complete.
  virtual Status iallreduce(void* in_out, int count, const Terms& terms, Request& request) = 0;
  virtual Status ireduce(const void* in, void* out, int count, const Terms& terms, Request& request) = 0;
  virtual Status ireduce_scatter(const void* in, void* out, const int* counts, const Terms& terms,
                                 Request& request) = 0;
  virtual Status iallgatherv(const void* in, int count, const OutParts& out, const Terms& terms,
                             Request& request) = 0;
  virtual Status ialltoallv(const InParts& in, const OutParts& out, const Terms& terms, Request& request) = 0;
  virtual Status ibcast(void* buffer, int count, const Terms& terms, Request& request) = 0;
  virtual Status isend(const void* buffer, int count, const Terms& terms, Request& request) = 0;
  virtual Status irecv(void* buffer, int count, const Terms& terms, Request& request) = 0;
  virtual Status ibarrier(Comm comm, Request& request) = 0;

  // ---- operations that block, for CUDA memory ----
  // Whether the library says that it takes CUDA memory. MPI must be initialised.
  [[nodiscard]] virtual bool takes_cuda_memory() = 0;
  // As those above, with results when they return.
  virtual Status allreduce(void* in_out, int count, const Terms& terms) = 0;
  virtual Status reduce_scatter(const void* in, void* out, const int* counts, const Terms& terms) = 0;
  virtual Status allgatherv(const void* in, int count, const OutParts& out, const Terms& terms) = 0;
  virtual Status alltoallv(const InParts& in, const OutParts& out, const Terms& terms) = 0;
  virtual Status bcast(void* buffer, int count, const Terms& terms) = 0;

 protected:
  Library(Flavor flavor, std::string path, std::string version)
      : flavor_(flavor), path_(std::move(path)), version_(std::move(version)) {}

 private:
  Flavor flavor_;
  std::string path_, version_;
};

// Loads this file, or binds to it if the process has it already. Fails with a sentence if it is no MPI that
// we know, or lacks a function (everything needed is in MPI 3.0).
Result<std::unique_ptr<Library>> load_library(const std::string& file);

}  // namespace rueda::backend::mpi
