// One call as operations of MPI: a list of pieces, posted in order, a few at a time. Usually there is one
// piece, the collective itself. MPI counts with int, so longer calls are cut: reductions and broadcasts into
// shorter ones, the others into a broadcast, a reduction or a message for each member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "rueda/backend/mpi/library.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/schedule/step.h"

namespace rueda::backend::mpi {

// input and output are runs of memory as backend/packing lays them out; allreduce: the same run.
struct TransferSpec {
  const schedule::Spec* spec = nullptr;
  Rank me = 0, size = 1;
  Comm comm;
  Op op;
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  int64_t most_elements = 0;  // in one operation of MPI; the same on every rank
};

class Transfer {
 public:
  // Plans the pieces; posts nothing.
  explicit Transfer(const TransferSpec& spec);
  Transfer(const Transfer&) = delete;  // MPI holds addresses of its members
  Transfer& operator=(const Transfer&) = delete;

  // Posts what there is room for and tests what was posted. True when all pieces are complete.
  Result<bool> progress(Library& library);
  // Whether all pieces are posted. Until then no later call of the same communicator may post any: MPI
  // matches collectives by their order.
  [[nodiscard]] bool is_posted() const { return next_ == pieces_.size(); }

 private:
  using Piece = std::function<Status(Library&, Request&)>;

  void plan();
  void plan_allreduce();
  void plan_broadcast();
  void plan_allgather();
  void plan_reducescatter();
  void plan_alltoall();
  void plan_messages(const std::vector<int64_t>& give, const std::vector<int64_t>& take);
  void plan_broadcasts(std::byte* buffer, int64_t count, Rank root);
  template <class Make>
  void cut(int64_t count, const Make& make);
  [[nodiscard]] std::byte* at(std::byte* buffer, int64_t element) const;
  [[nodiscard]] bool fits(int64_t count) const { return count <= spec_.most_elements; }

  TransferSpec spec_;
  size_t element_bytes_;
  Terms terms_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;  // piece to post
  std::vector<Request> open_;
  // Arguments that MPI may read until the operation is complete. [size]
  std::vector<int> give_, give_begins_, take_, take_begins_;
};

}  // namespace rueda::backend::mpi
