// An MPI library without MPI: one rank of several, whose operations complete when the test says so. What an
// operation computes is not simulated; real libraries do that in tests/multiprocess/test_mpi.py.
#pragma once

#include <latch>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rueda/backend/mpi/library.h"

namespace rueda::backend::mpi {

// What the test sees and decides; it outlives the library.
struct FakeMpi {
  int rank = 0, size = 2;
  bool is_initialized = false, is_finalized = false;
  ThreadLevel granted = ThreadLevel::kMultiple;
  std::vector<std::string> posted = {};  // "allreduce 10"
  std::map<Handle, std::string> open = {};
  bool completes_at_once = true;
  Status failure = {};                    // of the next test
  std::shared_ptr<std::latch> gate = {};  // a communicator is made when it is open
  int calls = 0;                          // of any function that moves data
};

class FakeLibrary final : public Library {
 public:
  explicit FakeLibrary(FakeMpi& mpi, std::string version = "Open MPI 9.9")
      : Library(Flavor::kOpenMpi, "/lib/libfake.so", std::move(version)), mpi_(mpi) {}

  bool is_initialized() override { return mpi_.is_initialized; }
  bool is_finalized() override { return mpi_.is_finalized; }
  Result<ThreadLevel> init(ThreadLevel) override {
    mpi_.is_initialized = true;
    return mpi_.granted;
  }
  ThreadLevel thread_level() override { return mpi_.granted; }
  Status finalize() override {
    mpi_.is_finalized = true;
    return Status::ok();
  }
  Comm world() override { return {1}; }
  Result<int> rank(Comm) override { return mpi_.rank; }
  Result<int> size(Comm) override { return mpi_.size; }
  bool is_congruent(Comm one, Comm other) override { return one.handle % 10 == other.handle % 10; }
  Status idup(Comm comm, Comm* copy, Request& request) override {
    copy->handle = comm.handle + 10;
    return post("idup", request);
  }
  Result<Comm> create_group(Comm, std::span<const int>, int) override {
    if (mpi_.gate) mpi_.gate->wait();
    return Comm{7};
  }
  void free(Comm) override {}
  Status return_errors(Comm) override { return Status::ok(); }

  Result<bool> test(Request& request) override {
    ++mpi_.calls;
    if (!mpi_.failure.is_ok()) return std::exchange(mpi_.failure, Status::ok());
    return mpi_.open.count(request.handle) == 0;
  }
  Result<Op> make_op(ReduceFunction* function) override {
    functions.push_back(function);
    return Op{100 + functions.size()};
  }
  Op builtin(BuiltinOp op) override { return {static_cast<Handle>(op) + 1}; }

  Status iallreduce(void*, int count, const Terms&, Request& request) override {
    return post("allreduce " + std::to_string(count), request);
  }
  Status ireduce(const void*, void*, int count, const Terms& terms, Request& request) override {
    return post("reduce " + std::to_string(count) + " to " + std::to_string(terms.peer), request);
  }
  Status ireduce_scatter(const void*, void*, const int*, const Terms&, Request& request) override {
    return post("reduce_scatter", request);
  }
  Status iallgatherv(const void*, int count, const OutParts&, const Terms&, Request& request) override {
    return post("allgatherv " + std::to_string(count), request);
  }
  Status ialltoallv(const InParts&, const OutParts&, const Terms&, Request& request) override {
    return post("alltoallv", request);
  }
  Status ibcast(void*, int count, const Terms& terms, Request& request) override {
    return post("bcast " + std::to_string(count) + " from " + std::to_string(terms.peer), request);
  }
  Status isend(const void*, int count, const Terms& terms, Request& request) override {
    return post("send " + std::to_string(count) + " to " + std::to_string(terms.peer), request);
  }
  Status irecv(void*, int count, const Terms& terms, Request& request) override {
    return post("recv " + std::to_string(count) + " from " + std::to_string(terms.peer), request);
  }
  Status ibarrier(Comm, Request& request) override { return post("barrier", request); }

  bool takes_cuda_memory() override { return false; }
  Status allreduce(void*, int count, const Terms&) override { return blocks("allreduce", count); }
  Status reduce_scatter(const void*, void*, const int* counts, const Terms&) override {
    return blocks("reduce_scatter", counts[0]);
  }
  Status allgatherv(const void*, int count, const OutParts&, const Terms&) override {
    return blocks("allgatherv", count);
  }
  Status alltoallv(const InParts& in, const OutParts& out, const Terms&) override {
    return blocks("alltoallv", in.counts[0], out.counts[1]);
  }
  Status bcast(void*, int count, const Terms& terms) override { return blocks("bcast", count, terms.peer); }

  std::vector<ReduceFunction*> functions;

 private:
  template <class... Numbers>
  Status blocks(std::string text, Numbers... numbers) {
    ((text += " " + std::to_string(numbers)), ...);
    mpi_.posted.push_back("blocking " + text);
    if (mpi_.gate) mpi_.gate->wait();
    return mpi_.failure;
  }
  Status post(std::string what, Request& request) {
    ++mpi_.calls;
    request.handle = ++last_;
    if (!mpi_.completes_at_once) mpi_.open[last_] = what;
    mpi_.posted.push_back(std::move(what));
    return Status::ok();
  }

  FakeMpi& mpi_;
  Handle last_ = 0;
};

}  // namespace rueda::backend::mpi
