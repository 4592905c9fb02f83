#include "collectives.h"

#include <cstring>

#include "rueda/kernels/kernels.h"

namespace rueda::fake_nccl {
namespace {

struct Header {
  uint32_t sequence = 0;
  int32_t kind = 0, type = 0, op = 0, peer = 0, padding = 0;
  uint64_t count = 0;
};

DType dtype_of(nccl::DataType type) {
  switch (type) {
    case nccl::kInt8:
      return DType::kInt8;
    case nccl::kInt32:
      return DType::kInt32;
    case nccl::kInt64:
      return DType::kInt64;
    case nccl::kFloat16:
      return DType::kFloat16;
    case nccl::kFloat32:
      return DType::kFloat32;
    case nccl::kFloat64:
      return DType::kFloat64;
    case nccl::kBfloat16:
      return DType::kBfloat16;
    default:
      return DType::kUint8;
  }
}

ReduceOp op_of(nccl::RedOp op) {
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMax, ReduceOp::kMin};
  return kOps[op];
}

std::byte* bytes_of(const void* memory) { return static_cast<std::byte*>(const_cast<void*>(memory)); }

std::string text_of(const Header& header) {
  return "{sequence " + std::to_string(header.sequence) + ", kind " + std::to_string(header.kind) +
         ", count " + std::to_string(header.count) + ", type " + std::to_string(header.type) + ", op " +
         std::to_string(header.op) + ", root " + std::to_string(header.peer) + "}";
}

// The begin of each of n blocks of nearly equal size, and the end.
std::vector<size_t> blocks_of(size_t count, int n) {
  std::vector<size_t> begins;
  for (int i = 0; i <= n; ++i) begins.push_back(count * static_cast<size_t>(i) / static_cast<size_t>(n));
  return begins;
}

}  // namespace

size_t size_of(nccl::DataType type) {
  switch (type) {
    case nccl::kInt8:
    case nccl::kUint8:
      return 1;
    case nccl::kFloat16:
    case nccl::kBfloat16:
      return 2;
    case nccl::kInt32:
    case nccl::kUint32:
    case nccl::kFloat32:
      return 4;
    case nccl::kInt64:
    case nccl::kUint64:
    case nccl::kFloat64:
      return 8;
  }
  return 0;
}

Wait Group::run(const std::vector<Op>& ops, uint32_t& sequence, std::string& mistake) {
  if (const Wait how = run_pairs(ops); how != Wait::kDone) return how;
  for (const Op& op : ops) {
    if (op.kind == Kind::kSend || op.kind == Kind::kRecv) continue;
    if (const Wait how = agree(op, ++sequence, mistake); how != Wait::kDone) return how;
    if (const Wait how = run_one(op); how != Wait::kDone) return how;
  }
  return Wait::kDone;
}

Wait Group::run_pairs(const std::vector<Op>& ops) {
  std::vector<Transfer> transfers;
  std::vector<const Op*> to_me, from_me;
  for (const Op& op : ops) {
    if (op.kind != Kind::kSend && op.kind != Kind::kRecv) continue;
    const bool is_send = op.kind == Kind::kSend;
    if (op.peer == me_)
      (is_send ? from_me : to_me).push_back(&op);
    else
      transfers.push_back(
          {op.peer, is_send, bytes_of(is_send ? op.send : op.receive), op.count * size_of(op.type)});
  }
  for (size_t i = 0; i < from_me.size() && i < to_me.size(); ++i)
    std::memmove(to_me[i]->receive, from_me[i]->send, from_me[i]->count * size_of(from_me[i]->type));
  return wire_.exchange(transfers);
}

Wait Group::agree(const Op& op, uint32_t sequence, std::string& mistake) {
  const bool has_op =
      op.kind == Kind::kAllReduce || op.kind == Kind::kReduce || op.kind == Kind::kReduceScatter;
  Header mine{.sequence = sequence,
              .kind = static_cast<int32_t>(op.kind),
              .type = op.type,
              .op = has_op ? op.op : 0,
              .peer = op.peer,
              .count = op.count};
  std::vector<Header> theirs(static_cast<size_t>(size_));
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == me_) continue;
    transfers.push_back({peer, true, bytes_of(&mine), sizeof(mine)});
    transfers.push_back({peer, false, bytes_of(&theirs[static_cast<size_t>(peer)]), sizeof(mine)});
  }
  if (const Wait how = wire_.exchange(transfers); how != Wait::kDone) return how;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == me_ || std::memcmp(&mine, &theirs[static_cast<size_t>(peer)], sizeof(mine)) == 0) continue;
    mistake = "member " + std::to_string(me_) + " runs " + text_of(mine) + ", member " +
              std::to_string(peer) + " runs " + text_of(theirs[static_cast<size_t>(peer)]);
    return Wait::kLost;
  }
  return Wait::kDone;
}

Wait Group::run_one(const Op& op) {
  switch (op.kind) {
    case Kind::kAllReduce:
      return all_reduce(op);
    case Kind::kBroadcast:
      return broadcast(op);
    case Kind::kReduce:
      return reduce(op);
    case Kind::kAllGather:
      return all_gather(op);
    case Kind::kReduceScatter:
      return reduce_scatter(op);
    default:
      return Wait::kDone;
  }
}

Wait Group::pass(const void* send, size_t send_bytes, void* receive, size_t receive_bytes) {
  const Transfer transfers[] = {{next(), true, bytes_of(send), send_bytes},
                                {before(), false, bytes_of(receive), receive_bytes}};
  return wire_.exchange(transfers);
}

Wait Group::ring_reduce(std::byte* data, const std::vector<size_t>& begins, const Op& op) {
  const size_t element = size_of(op.type);
  const auto block = [&](int index) { return static_cast<size_t>((index + 2 * size_) % size_); };
  std::vector<std::byte> arrived;
  for (int step = 1; step < size_; ++step) {
    const size_t out = block(me_ - step), in = block(me_ - step - 1);
    const size_t in_count = begins[in + 1] - begins[in];
    arrived.resize(in_count * element);
    const Wait how = pass(data + begins[out] * element, (begins[out + 1] - begins[out]) * element,
                          arrived.data(), arrived.size());
    if (how != Wait::kDone) return how;
    std::byte* const mine = data + begins[in] * element;
    kernels::reduce(op_of(op.op), dtype_of(op.type), arrived.data(), mine, mine, in_count);
  }
  return Wait::kDone;
}

Wait Group::ring_gather(std::byte* data, const std::vector<size_t>& begins, size_t element) {
  const auto block = [&](int index) { return static_cast<size_t>((index + size_) % size_); };
  for (int step = 0; step + 1 < size_; ++step) {
    const size_t out = block(me_ - step), in = block(me_ - step - 1);
    const Wait how = pass(data + begins[out] * element, (begins[out + 1] - begins[out]) * element,
                          data + begins[in] * element, (begins[in + 1] - begins[in]) * element);
    if (how != Wait::kDone) return how;
  }
  return Wait::kDone;
}

Wait Group::all_reduce(const Op& op) {
  const size_t bytes = op.count * size_of(op.type);
  if (op.send != op.receive) std::memcpy(op.receive, op.send, bytes);
  const std::vector<size_t> begins = blocks_of(op.count, size_);
  if (const Wait how = ring_reduce(bytes_of(op.receive), begins, op); how != Wait::kDone) return how;
  return ring_gather(bytes_of(op.receive), begins, size_of(op.type));
}

Wait Group::broadcast(const Op& op) {
  const size_t bytes = op.count * size_of(op.type);
  std::vector<Transfer> transfers;
  if (op.peer != me_) transfers.push_back({op.peer, false, bytes_of(op.receive), bytes});
  for (int peer = 0; op.peer == me_ && peer < size_; ++peer)
    if (peer != me_) transfers.push_back({peer, true, bytes_of(op.send), bytes});
  if (op.peer == me_ && op.send != op.receive) std::memcpy(op.receive, op.send, bytes);
  return wire_.exchange(transfers);
}

// A chain that ends at the root.
Wait Group::reduce(const Op& op) {
  const size_t bytes = op.count * size_of(op.type);
  const bool is_first = me_ == (op.peer + 1) % size_ || size_ == 1;
  const bool is_last = me_ == op.peer;
  std::vector<std::byte> sum(bytes), arrived(bytes);
  if (bytes > 0) std::memcpy(sum.data(), op.send, bytes);
  if (!is_first) {
    const Transfer in[] = {{before(), false, arrived.data(), bytes}};
    if (const Wait how = wire_.exchange(in); how != Wait::kDone) return how;
    kernels::reduce(op_of(op.op), dtype_of(op.type), arrived.data(), sum.data(), sum.data(), op.count);
  }
  if (is_last) {
    if (bytes > 0) std::memcpy(op.receive, sum.data(), bytes);
    return Wait::kDone;
  }
  const Transfer out[] = {{next(), true, sum.data(), bytes}};
  return wire_.exchange(out);
}

Wait Group::all_gather(const Op& op) {
  const size_t element = size_of(op.type);
  std::vector<size_t> begins;
  for (int i = 0; i <= size_; ++i) begins.push_back(op.count * static_cast<size_t>(i));
  std::byte* const mine = bytes_of(op.receive) + begins[static_cast<size_t>(me_)] * element;
  if (mine != op.send && op.count > 0) std::memcpy(mine, op.send, op.count * element);
  return ring_gather(bytes_of(op.receive), begins, element);
}

Wait Group::reduce_scatter(const Op& op) {
  const size_t element = size_of(op.type);
  std::vector<size_t> begins;
  for (int i = 0; i <= size_; ++i) begins.push_back(op.count * static_cast<size_t>(i));
  std::vector<std::byte> data(begins.back() * element);
  if (!data.empty()) std::memcpy(data.data(), op.send, data.size());
  if (const Wait how = ring_reduce(data.data(), begins, op); how != Wait::kDone) return how;
  if (op.count > 0)
    std::memcpy(op.receive, data.data() + begins[static_cast<size_t>(me_)] * element, op.count * element);
  return Wait::kDone;
}

}  // namespace rueda::fake_nccl
