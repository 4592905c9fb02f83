// The error sentences begin with Horovod's words, because programs and tests look for them. The rest of each
// sentence is ours.
#include "rueda/control/check_request.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "rueda/base/limits.h"

namespace rueda::control {
namespace {

// "Allreduce", as Horovod's sentences spell it.
std::string_view title_of(Collective what) {
  switch (what) {
    case Collective::kAllreduce:
      return "Allreduce";
    case Collective::kAllgather:
      return "Allgather";
    case Collective::kBroadcast:
      return "Broadcast";
    case Collective::kJoin:
      return "Join";
    case Collective::kAlltoall:
      return "Alltoall";
    case Collective::kBarrier:
      return "Barrier";
    case Collective::kReducescatter:
      return "Reducescatter";
  }
  return "Operation";
}

// The answer to an alltoall has the rows of each pair of ranks, and travels as one message. Names, shape and
// terms take less than the reserve.
constexpr size_t kReserve = 16 << 10;
constexpr size_t kMaxPairs = (kMaxMessageBytes - kReserve) / sizeof(int64_t);

Status refuse(std::string why) { return {Code::kInvalidArgument, std::move(why)}; }

bool contains(const std::vector<Rank>& members, Rank rank) {
  return std::binary_search(members.begin(), members.end(), rank);
}

std::string invalid_root(const TensorRequest& request) {
  return "broadcast received invalid root rank " + std::to_string(request.root) + " for provided process set";
}

Status check_membership(const TensorRequest& request, const std::vector<Rank>* members, Rank me) {
  if (members != nullptr && contains(*members, me)) return Status::ok();
  std::string why(title_of(request.what));
  if (members == nullptr) {
    why += ": Process set provided does not exist, or has not been registered.";
  } else {
    why += ": Rank " + std::to_string(me) + " is not a member of the provided process set.";
  }
  if (request.what == Collective::kReducescatter)
    return refuse("Invalid process set id for this rank: " + std::to_string(request.process_set) + ". " +
                  why);
  if (request.what == Collective::kBroadcast && members != nullptr)
    return refuse(invalid_root(request) + ". " + why);
  return refuse(std::move(why));
}

Status check_layout(const TensorRequest& request) {
  if (request.name.empty()) return refuse("An operation without a name cannot be matched; give it one.");
  if (request.name.size() > kMaxNameBytes || request.group_name.size() > kMaxNameBytes)
    return refuse("The name " + request.name.substr(0, 64) + "… is longer than " +
                  std::to_string(kMaxNameBytes) + " bytes; shorten it.");
  if (request.group_size < 1 || request.group_index < 0 || request.group_index >= request.group_size)
    return refuse("Tensor " + request.name + " has position " + std::to_string(request.group_index) +
                  " in a group of " + std::to_string(request.group_size) + ".");
  if (request.shape.size() > kMaxDims)
    return refuse("Tensor " + request.name + " has " + std::to_string(request.shape.size()) +
                  " dimensions; at most " + std::to_string(kMaxDims) + " are supported.");
  int64_t bytes = static_cast<int64_t>(size_of(request.dtype));
  bool is_empty = false;
  for (const int64_t dim : request.shape) {
    if (dim < 0)
      return refuse("Tensor " + request.name + " has a negative dimension: " + shape_string(request.shape) +
                    ".");
    is_empty |= dim == 0;
  }
  for (const int64_t dim : request.shape)
    if (!is_empty && __builtin_mul_overflow(bytes, dim, &bytes))
      return refuse("Tensor " + request.name + " is too large: " + shape_string(request.shape) + ".");
  return Status::ok();
}

Status check_op(const TensorRequest& request) {
  if (request.op > ReduceOp::kProduct) return {Code::kUnsupported, "Reduction op type not supported."};
  if (request.what == Collective::kReducescatter && request.op != ReduceOp::kAverage &&
      request.op != ReduceOp::kSum)
    return {Code::kUnsupported, "Reducescatter currently only supports AVERAGE and SUM. Tensor " +
                                    request.name + " asked for " + std::string(name_of(request.op)) + "."};
  if (request.what == Collective::kAllreduce && request.op == ReduceOp::kAdasum &&
      !is_floating(request.dtype))
    return {Code::kUnsupported, "Adasum needs a floating-point tensor, but " + request.name + " is " +
                                    std::string(name_of(request.dtype)) + "."};
  return Status::ok();
}

// What a wire type is for; empty if this is it.
std::string why_not_encoded(const TensorRequest& request) {
  if (request.what != Collective::kAllreduce) return "are for allreduces";
  if (request.op == ReduceOp::kAdasum) return "do not go with Adasum, which needs the vectors themselves";
  if (request.op != ReduceOp::kSum && request.op != ReduceOp::kAverage)
    return "are for Sum and Average, but it asks for " + std::string(name_of(request.op));
  if (request.dtype != DType::kFloat32)
    return "are for float32, but it is " + std::string(name_of(request.dtype));
  if (request.memory == MemoryKind::kDevice) return "are for host memory, but it is in device memory";
  return {};
}

Status check_wire(const TensorRequest& request) {
  if (request.wire == Wire::kExact) return Status::ok();
  const std::string why = why_not_encoded(request);
  if (why.empty()) return Status::ok();
  return {Code::kUnsupported, "Tensor " + request.name + " asks for the wire type " +
                                  std::string(name_of(request.wire)) + ", but wire types " + why +
                                  "; leave it out for this tensor."};
}

Status check_splits(const TensorRequest& request, size_t member_count) {
  if (member_count * member_count > kMaxPairs)
    return {Code::kUnsupported,
            "Alltoall of tensor " + request.name + " is refused: " + std::to_string(member_count) +
                " ranks have more pairs than fit into one control message (" + std::to_string(kMaxPairs) +
                "); run it on smaller process sets, for example within hosts and then between them."};
  if (request.shape.empty()) return Status::ok();  // the coordinator refuses it with Horovod's text
  const int64_t rows = request.shape[0];
  if (request.splits.empty()) {
    if (rows % static_cast<int64_t>(member_count) == 0) return Status::ok();
    return refuse(
        "splits not provided, but first dimension of tensor is not an even multiple of the number of "
        "workers. Tensor " +
        request.name + " has " + std::to_string(rows) + " rows for " + std::to_string(member_count) +
        " ranks.");
  }
  if (request.splits.size() != member_count)
    return refuse("Number of entries in splits does not equal number of workers. Tensor " + request.name +
                  " has " + std::to_string(request.splits.size()) + " splits for " +
                  std::to_string(member_count) + " ranks.");
  int64_t sum = 0;
  for (const int32_t split : request.splits) {
    if (split < 0)
      return refuse("Entries in splits must not be negative. Tensor " + request.name + " has " +
                    std::to_string(split) + ".");
    sum += split;
  }
  if (sum > rows)
    return refuse("Sum of splits entries is greater than the first dimension of tensor. Tensor " +
                  request.name + " has " + std::to_string(rows) + " rows, and the splits ask for " +
                  std::to_string(sum) + ".");
  return Status::ok();
}

}  // namespace

Wire effective_wire(const TensorRequest& request, Wire wanted, bool are_on_one_host) {
  constexpr int64_t kLeastElements = 1024;
  int64_t count = 1;
  for (const int64_t dim : request.shape) count *= dim;
  const bool is_too_small = count < kLeastElements && !are_on_one_host;
  return is_too_small || !why_not_encoded(request).empty() ? Wire::kExact : wanted;
}

Status check_request(const TensorRequest& request, const std::vector<Rank>* members, Rank me,
                     Rank world_size) {
  if (Status status = check_layout(request); !status.is_ok()) return status;
  if (Status status = check_membership(request, members, me); !status.is_ok()) return status;
  if (Status status = check_wire(request); !status.is_ok()) return status;
  switch (request.what) {
    case Collective::kAllreduce:
      return check_op(request);
    case Collective::kReducescatter:
      if (request.shape.empty())
        return refuse("Reducescatter does not support scalar inputs. Tensor " + request.name +
                      " has shape [].");
      return check_op(request);
    case Collective::kBroadcast:
      if (request.root < 0 || request.root >= world_size || !contains(*members, request.root))
        return refuse(invalid_root(request));
      return Status::ok();
    case Collective::kAlltoall:
      return check_splits(request, members->size());
    case Collective::kJoin:
      if (request.process_set != 0) return refuse("Join is for all ranks; it takes no process set.");
      return Status::ok();
    case Collective::kAllgather:
    case Collective::kBarrier:
      return Status::ok();
  }
  return refuse("Tensor " + request.name + " asks for a collective this version does not know.");
}

}  // namespace rueda::control
