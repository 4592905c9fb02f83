// Which functions of NCCL run a call. NCCL has no collectives with uneven counts: an uneven allgather is one
// broadcast from each member, an uneven reducescatter one reduction to each member, and an alltoall sends and
// receives. All steps of a call form one group, which NCCL runs as one. Pure.
//
// Steps and bytes of member i, with S bytes of input and n members: allreduce: one step, 2 S (n-1)/n bytes
// out; broadcast: one step; allgather, reducescatter: one step for each tensor if even, else n; alltoall: at
// most 2 n for each tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rueda/backend/device_packing.h"
#include "rueda/backend/nccl/abi.h"
#include "rueda/base/types.h"
#include "rueda/schedule/step.h"

namespace rueda::nccl {

// The type in which NCCL adds such elements; empty: it has none.
std::optional<DataType> reduced_type(DType dtype);
std::optional<RedOp> reduced_op(ReduceOp op);

inline bool is_adasum(const schedule::Spec& spec) {
  return spec.what == Collective::kAllreduce && spec.op == ReduceOp::kAdasum;
}
// Whether NCCL can run such a call at all.
bool runs(const schedule::Spec& spec);

enum class Function : uint8_t { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kSend, kRecv };

struct Step {
  Function function = Function::kAllReduce;
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  size_t count = 0;  // elements of `type`, as the function takes it
  DataType type = kUint8;
  RedOp op = kSum;
  int peer = 0;  // of a send or receive; the root of a broadcast or reduction

  bool operator==(const Step&) const = default;
};

using backend::DeviceRun;

// The steps of member `me` of n. spec.scale has no part in them.
std::vector<Step> steps_of(const schedule::Spec& spec, std::span<const DeviceRun> runs, Rank me, Rank n);

// How inputs and results of a reduction are scaled around NCCL's sum.
struct Scaling {
  Scale before, after;
};
// Results are scaled once, as on the host. The exception is an average of float16: its inputs are divided
// before they are added, because a sum of a few large values would exceed 65504.
Scaling scaling_of(const schedule::Spec& spec, double prescale);

}  // namespace rueda::nccl
