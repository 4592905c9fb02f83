// The collectives, on the memory of the tests' devices, which is memory of the process. Reductions run as
// NCCL's rings do: each hop adds one member's values and rounds to the element type. The order of the sum
// therefore differs from element block to element block, and 16-bit sums round once a hop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rueda/backend/nccl/abi.h"
#include "wire.h"

namespace rueda::fake_nccl {

enum class Kind : uint8_t { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kSend, kRecv };

struct Op {
  Kind kind = Kind::kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  uint64_t count = 0;  // as the function takes it
  nccl::DataType type = nccl::kUint8;
  nccl::RedOp op = nccl::kSum;
  int peer = 0;  // or the root
};

size_t size_of(nccl::DataType type);  // 0: unknown

// Runs the operations of one group.
class Group {
 public:
  Group(Wire& wire, int me, int size) : wire_(wire), me_(me), size_(size) {}
  // mistake: filled if the members run different collectives.
  Wait run(const std::vector<Op>& ops, uint32_t& sequence, std::string& mistake);

 private:
  Wait run_pairs(const std::vector<Op>& ops);
  Wait agree(const Op& op, uint32_t sequence, std::string& mistake);
  Wait run_one(const Op& op);
  Wait all_reduce(const Op& op);
  Wait broadcast(const Op& op);
  Wait reduce(const Op& op);
  Wait all_gather(const Op& op);
  Wait reduce_scatter(const Op& op);
  // Blocks of `data` travel around the ring; afterwards block `me` holds all members' values.
  Wait ring_reduce(std::byte* data, const std::vector<size_t>& begins, const Op& op);
  Wait ring_gather(std::byte* data, const std::vector<size_t>& begins, size_t element);
  Wait pass(const void* send, size_t send_bytes, void* receive, size_t receive_bytes);
  [[nodiscard]] int next() const { return (me_ + 1) % size_; }
  [[nodiscard]] int before() const { return (me_ + size_ - 1) % size_; }

  Wire& wire_;
  int me_, size_;
};

}  // namespace rueda::fake_nccl
