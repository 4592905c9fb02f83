// The C functions of the tests' libnccl.
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "comm.h"

using rueda::fake_nccl::Comm;
using rueda::fake_nccl::control;
using rueda::fake_nccl::Kind;
using rueda::fake_nccl::Op;
using namespace rueda::nccl;  // NOLINT: the names of the interface

namespace rueda::nccl {
struct Comm {  // what a handle points to
  std::shared_ptr<fake_nccl::Comm> comm;
  std::string last_error;  // keeps the text that ncclGetLastError returns
};
}  // namespace rueda::nccl

namespace {

constexpr char kIdMark[] = "fake-nccl-";

struct Pending {  // what a thread has collected since its ncclGroupStart
  std::vector<Op> ops;
  void* stream = nullptr;
};
thread_local int group_depth = 0;
thread_local std::map<CommHandle, Pending> pending;

ResultCode end_group() {
  ResultCode first = kSuccess;
  for (auto& [handle, collected] : std::exchange(pending, {})) {
    const ResultCode launched = handle->comm->launch(std::move(collected.ops), collected.stream);
    if (first == kSuccess || first == kInProgress) first = launched == kSuccess ? first : launched;
  }
  return first;
}

ResultCode add(CommHandle handle, void* stream, const Op& op) {
  const bool is_rooted = op.kind == Kind::kBroadcast || op.kind == Kind::kReduce || op.kind == Kind::kSend ||
                         op.kind == Kind::kRecv;
  if (handle == nullptr || rueda::fake_nccl::size_of(op.type) == 0 || op.op < kSum || op.op > kMin)
    return kInvalidArgument;
  if (is_rooted && (op.peer < 0 || op.peer >= handle->comm->size())) return kInvalidArgument;
  Pending& mine = pending[handle];
  mine.ops.push_back(op);
  mine.stream = stream;
  return group_depth == 0 ? end_group() : kSuccess;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

rueda::fake_nccl::Control* fake_nccl_control() { return &control(); }

ResultCode ncclGetVersion(int* version) {
  *version = control().version;
  return kSuccess;
}

ResultCode ncclGetUniqueId(UniqueId* id) {
  std::random_device random;
  *id = {};
  const std::string text =
      kIdMark + std::to_string(random()) + "-" + std::to_string(random()) + "-" + std::to_string(random());
  std::memcpy(id->internal, text.data(), text.size());
  return kSuccess;
}

ResultCode ncclCommInitRankConfig(CommHandle* handle, int ranks, UniqueId id, int rank, Config* config) {
  id.internal[kUniqueIdBytes - 1] = '\0';
  const std::string name(id.internal);
  if (config->magic != kConfigMagic || config->size != sizeof(Config) || config->version < 21700 ||
      rank < 0 || rank >= ranks || !name.starts_with(kIdMark))
    return kInvalidArgument;
  if (config->blocking != 0) return kInvalidUsage;  // the tests' library knows only this way
  if (control().failing_member == rank && control().fail_begin != 0)
    return static_cast<ResultCode>(control().fail_begin.load());
  const auto* driver = rueda::fake_nccl::cuda();
  unsigned char uuid[16] = {};
  if (driver == nullptr || !driver->current_uuid(uuid)) return kUnhandledCudaError;
  *handle = new rueda::nccl::Comm{std::make_shared<::Comm>(name, rank, ranks), {}};
  (*handle)->comm->begin(uuid);
  return kInProgress;
}

ResultCode ncclCommFinalize(CommHandle handle) {
  handle->comm->finalize();
  return handle->comm->state();
}

ResultCode ncclCommDestroy(CommHandle handle) {
  delete handle;
  return kSuccess;
}

ResultCode ncclCommAbort(CommHandle handle) {
  handle->comm->abort();
  delete handle;
  return kSuccess;
}

ResultCode ncclCommGetAsyncError(CommHandle handle, ResultCode* error) {
  *error = handle->comm->state();
  return kSuccess;
}

const char* ncclGetErrorString(ResultCode result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kRemoteError:
      return "remote process exited or there was a network error";
    case kInProgress:
      return "NCCL operation in progress";
    case kInvalidUsage:
      return "invalid usage";
    default:
      return "internal error";
  }
}

const char* ncclGetLastError(CommHandle handle) {
  if (handle == nullptr) return "";
  handle->last_error = handle->comm->last_error();
  return handle->last_error.c_str();
}

ResultCode ncclAllReduce(const void* send, void* receive, size_t count, DataType type, RedOp op,
                         CommHandle comm, Stream stream) {
  return add(comm, stream, {Kind::kAllReduce, send, receive, count, type, op, 0});
}

ResultCode ncclBroadcast(const void* send, void* receive, size_t count, DataType type, int root,
                         CommHandle comm, Stream stream) {
  return add(comm, stream, {Kind::kBroadcast, send, receive, count, type, kSum, root});
}

ResultCode ncclReduce(const void* send, void* receive, size_t count, DataType type, RedOp op, int root,
                      CommHandle comm, Stream stream) {
  return add(comm, stream, {Kind::kReduce, send, receive, count, type, op, root});
}

ResultCode ncclAllGather(const void* send, void* receive, size_t count, DataType type, CommHandle comm,
                         Stream stream) {
  return add(comm, stream, {Kind::kAllGather, send, receive, count, type, kSum, 0});
}

ResultCode ncclReduceScatter(const void* send, void* receive, size_t count, DataType type, RedOp op,
                             CommHandle comm, Stream stream) {
  return add(comm, stream, {Kind::kReduceScatter, send, receive, count, type, op, 0});
}

ResultCode ncclSend(const void* send, size_t count, DataType type, int peer, CommHandle comm, Stream stream) {
  return add(comm, stream, {Kind::kSend, send, nullptr, count, type, kSum, peer});
}

ResultCode ncclRecv(void* receive, size_t count, DataType type, int peer, CommHandle comm, Stream stream) {
  return add(comm, stream, {Kind::kRecv, nullptr, receive, count, type, kSum, peer});
}

ResultCode ncclGroupStart() {
  ++group_depth;
  return kSuccess;
}

ResultCode ncclGroupEnd() { return --group_depth == 0 ? end_group() : kSuccess; }

}  // extern "C"
#pragma GCC visibility pop
