// The part of NCCL's C interface that the backend uses, declared here so that no build needs NVIDIA's header.
// The interface is stable: NCCL 2.x only appends functions, values and fields of the configuration. What is
// written here is that of NCCL 2.18. Source: nccl.h of 2.18, and NCCL's user guide.
#pragma once

#include <climits>
#include <cstddef>

namespace rueda::nccl {

struct Comm;  // opaque: ncclComm
using CommHandle = Comm*;
using Stream = void*;  // cudaStream_t, which is CUstream

inline constexpr size_t kUniqueIdBytes = 128;
struct UniqueId {
  char internal[kUniqueIdBytes];
};

// ncclResult_t
enum ResultCode : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// ncclDataType_t
enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

// ncclRedOp_t, without ncclAvg and user-defined operations: rueda scales with kernels of its own.
enum RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

// NCCL_VERSION(2, 18, 0)
inline constexpr int kLeastVersion = 21800;
inline constexpr unsigned kConfigMagic = 0xcafebeef;

// ncclConfig_t as of 2.18. A later library reads `size` bytes and takes its defaults for the rest, which
// `version` tells it.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = kConfigMagic;
  unsigned version = kLeastVersion;
  int blocking = INT_MIN;  // INT_MIN, null: NCCL's default
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};
static_assert(offsetof(Config, blocking) == 16 && offsetof(Config, net_name) == 32 && sizeof(Config) == 48);

// The functions of libnccl.so.2, without the prefix "nccl".
struct Functions {
  ResultCode (*GetVersion)(int* version) = nullptr;
  ResultCode (*GetUniqueId)(UniqueId* id) = nullptr;
  ResultCode (*CommInitRankConfig)(CommHandle* comm, int ranks, UniqueId id, int rank,
                                   Config* config) = nullptr;
  ResultCode (*CommFinalize)(CommHandle comm) = nullptr;
  ResultCode (*CommDestroy)(CommHandle comm) = nullptr;
  ResultCode (*CommAbort)(CommHandle comm) = nullptr;
  ResultCode (*CommGetAsyncError)(CommHandle comm, ResultCode* error) = nullptr;
  const char* (*GetErrorString)(ResultCode result) = nullptr;
  const char* (*GetLastError)(CommHandle comm) = nullptr;
  ResultCode (*AllReduce)(const void* send, void* receive, size_t count, DataType type, RedOp op,
                          CommHandle comm, Stream stream) = nullptr;
  ResultCode (*Broadcast)(const void* send, void* receive, size_t count, DataType type, int root,
                          CommHandle comm, Stream stream) = nullptr;
  ResultCode (*Reduce)(const void* send, void* receive, size_t count, DataType type, RedOp op, int root,
                       CommHandle comm, Stream stream) = nullptr;
  ResultCode (*AllGather)(const void* send, void* receive, size_t send_count, DataType type, CommHandle comm,
                          Stream stream) = nullptr;
  ResultCode (*ReduceScatter)(const void* send, void* receive, size_t receive_count, DataType type, RedOp op,
                              CommHandle comm, Stream stream) = nullptr;
  ResultCode (*Send)(const void* send, size_t count, DataType type, int peer, CommHandle comm,
                     Stream stream) = nullptr;
  ResultCode (*Recv)(void* receive, size_t count, DataType type, int peer, CommHandle comm,
                     Stream stream) = nullptr;
  ResultCode (*GroupStart)() = nullptr;
  ResultCode (*GroupEnd)() = nullptr;
};

// Every function of the table with its name: "ncclAllReduce".
template <class F>
void for_each_function(Functions& table, const F& f) {
  f("ncclGetVersion", table.GetVersion);
  f("ncclGetUniqueId", table.GetUniqueId);
  f("ncclCommInitRankConfig", table.CommInitRankConfig);
  f("ncclCommFinalize", table.CommFinalize);
  f("ncclCommDestroy", table.CommDestroy);
  f("ncclCommAbort", table.CommAbort);
  f("ncclCommGetAsyncError", table.CommGetAsyncError);
  f("ncclGetErrorString", table.GetErrorString);
  f("ncclGetLastError", table.GetLastError);
  f("ncclAllReduce", table.AllReduce);
  f("ncclBroadcast", table.Broadcast);
  f("ncclReduce", table.Reduce);
  f("ncclAllGather", table.AllGather);
  f("ncclReduceScatter", table.ReduceScatter);
  f("ncclSend", table.Send);
  f("ncclRecv", table.Recv);
  f("ncclGroupStart", table.GroupStart);
  f("ncclGroupEnd", table.GroupEnd);
}

}  // namespace rueda::nccl
