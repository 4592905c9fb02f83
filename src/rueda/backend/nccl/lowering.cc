#include "rueda/backend/nccl/lowering.h"

#include <algorithm>

#include "rueda/base/check.h"

namespace rueda::nccl {
namespace {

bool are_equal(std::span<const int64_t> counts) {
  return std::ranges::all_of(counts, [&](int64_t count) { return count == counts.front(); });
}

// Adds the steps of one call, leaving out those without elements: every member leaves out the same.
class Lowering {
 public:
  Lowering(const schedule::Spec& spec, Rank me, Rank n) : spec_(spec), me_(me), n_(n) {
    element_ = size_of(spec.dtype);
    if (!is_reduction(spec.what)) return;
    const auto type = reduced_type(spec.dtype);
    const auto op = reduced_op(spec.op);
    RUEDA_CHECK(type && op, "NCCL does not reduce such a call");
    type_ = *type;
    op_ = *op;
  }

  void add(const DeviceRun& run) {
    switch (spec_.what) {
      case Collective::kAllreduce:
        return add_step(Function::kAllReduce, run.input, run.output, run.count, 0);
      case Collective::kBroadcast:
        return add_step(Function::kBroadcast, run.input, run.output, run.count, spec_.root);
      case Collective::kAllgather:
        return gather(run);
      case Collective::kReducescatter:
        return scatter(run);
      case Collective::kAlltoall:
        return exchange(run);
      case Collective::kBarrier:
      case Collective::kJoin:
        break;
    }
    RUEDA_CHECK(false, "NCCL runs no such call");
  }
  [[nodiscard]] std::vector<Step> take() { return std::move(steps_); }

 private:
  // What is not reduced moves as bytes.
  void add_step(Function function, const std::byte* send, std::byte* receive, int64_t count, Rank peer) {
    if (count == 0) return;
    const bool is_moved = !is_reduction(spec_.what);
    const size_t elements = static_cast<size_t>(count) * (is_moved ? element_ : 1);
    steps_.push_back({function, send, receive, elements, type_, op_, peer});
  }
  [[nodiscard]] size_t bytes(int64_t count) const { return static_cast<size_t>(count) * element_; }

  void gather(const DeviceRun& run) {
    if (are_equal(run.counts))
      return add_step(Function::kAllGather, run.input, run.output, run.counts.front(), 0);
    std::byte* to = run.output;
    for (Rank root = 0; root < n_; ++root) {
      const int64_t count = run.counts[static_cast<size_t>(root)];
      add_step(Function::kBroadcast, root == me_ ? run.input : to, to, count, root);
      to += bytes(count);
    }
  }
  void scatter(const DeviceRun& run) {
    if (are_equal(run.counts))
      return add_step(Function::kReduceScatter, run.input, run.output, run.counts.front(), 0);
    const std::byte* from = run.input;
    for (Rank root = 0; root < n_; ++root) {
      const int64_t count = run.counts[static_cast<size_t>(root)];
      add_step(Function::kReduce, from, root == me_ ? run.output : nullptr, count, root);
      from += bytes(count);
    }
  }
  void exchange(const DeviceRun& run) {
    const std::byte* from = run.input;
    std::byte* to = run.output;
    for (Rank peer = 0; peer < n_; ++peer) {
      const int64_t given = run.counts[static_cast<size_t>(me_ * n_ + peer)];
      const int64_t taken = run.counts[static_cast<size_t>(peer * n_ + me_)];
      add_step(Function::kSend, from, nullptr, given, peer);
      add_step(Function::kRecv, nullptr, to, taken, peer);
      from += bytes(given);
      to += bytes(taken);
    }
  }

  const schedule::Spec& spec_;
  Rank me_, n_;
  size_t element_ = 1;  // bytes
  DataType type_ = kUint8;
  RedOp op_ = kSum;
  std::vector<Step> steps_;
};

}  // namespace

std::optional<DataType> reduced_type(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return kUint8;
    case DType::kInt8:
      return kInt8;
    case DType::kInt32:
      return kInt32;
    case DType::kInt64:
      return kInt64;
    case DType::kFloat16:
      return kFloat16;
    case DType::kFloat32:
      return kFloat32;
    case DType::kFloat64:
      return kFloat64;
    case DType::kBfloat16:
      return kBfloat16;
    case DType::kUint16:
    case DType::kInt16:
    case DType::kBool:
      break;
  }
  return std::nullopt;
}

std::optional<RedOp> reduced_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return kSum;
    case ReduceOp::kMin:
      return kMin;
    case ReduceOp::kMax:
      return kMax;
    case ReduceOp::kProduct:
      return kProd;
    case ReduceOp::kAdasum:
      break;
  }
  return std::nullopt;
}

std::vector<Step> steps_of(const schedule::Spec& spec, std::span<const DeviceRun> runs, Rank me, Rank n) {
  Lowering lowering(spec, me, n);
  for (const DeviceRun& run : runs) lowering.add(run);
  return lowering.take();
}

Scaling scaling_of(const schedule::Spec& spec, double prescale) {
  Scaling scaling{.before = {.factor = prescale}, .after = spec.scale};
  if (spec.dtype == DType::kFloat16 && spec.scale.divisor > 1) {
    scaling.before.divisor = spec.scale.divisor;
    scaling.after.divisor = 1;
  }
  return scaling;
}

bool runs(const schedule::Spec& spec) {
  switch (spec.what) {
    case Collective::kAllreduce:
    case Collective::kReducescatter:
      if (is_adasum(spec)) return is_floating(spec.dtype);
      return reduced_type(spec.dtype) && reduced_op(spec.op);
    case Collective::kAllgather:
    case Collective::kBroadcast:
    case Collective::kAlltoall:
      return true;
    case Collective::kBarrier:
    case Collective::kJoin:
      break;
  }
  return false;
}

}  // namespace rueda::nccl
