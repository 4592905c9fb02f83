// Our declarations of NCCL's interface against the header in NVIDIA's wheel, where that is installed.
#include <gtest/gtest.h>

#include "alike_functions.h"
#include "rueda/backend/nccl/abi.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

namespace rueda::nccl::backend_nccl_abi_test {
namespace {

#define RUEDA_SAME_FUNCTION(name) \
  static_assert(are_alike(decltype(Functions::name)(nullptr), decltype (&nccl##name)(nullptr)), #name)
RUEDA_SAME_FUNCTION(GetVersion);
RUEDA_SAME_FUNCTION(GetUniqueId);
RUEDA_SAME_FUNCTION(CommInitRankConfig);
RUEDA_SAME_FUNCTION(CommFinalize);
RUEDA_SAME_FUNCTION(CommDestroy);
RUEDA_SAME_FUNCTION(CommAbort);
RUEDA_SAME_FUNCTION(CommGetAsyncError);
RUEDA_SAME_FUNCTION(GetErrorString);
RUEDA_SAME_FUNCTION(GetLastError);
RUEDA_SAME_FUNCTION(AllReduce);
RUEDA_SAME_FUNCTION(Broadcast);
RUEDA_SAME_FUNCTION(Reduce);
RUEDA_SAME_FUNCTION(AllGather);
RUEDA_SAME_FUNCTION(ReduceScatter);
RUEDA_SAME_FUNCTION(Send);
RUEDA_SAME_FUNCTION(Recv);
RUEDA_SAME_FUNCTION(GroupStart);
RUEDA_SAME_FUNCTION(GroupEnd);
#undef RUEDA_SAME_FUNCTION

#define RUEDA_SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
RUEDA_SAME(kSuccess, ncclSuccess);
RUEDA_SAME(kUnhandledCudaError, ncclUnhandledCudaError);
RUEDA_SAME(kSystemError, ncclSystemError);
RUEDA_SAME(kInternalError, ncclInternalError);
RUEDA_SAME(kInvalidArgument, ncclInvalidArgument);
RUEDA_SAME(kInvalidUsage, ncclInvalidUsage);
RUEDA_SAME(kRemoteError, ncclRemoteError);
RUEDA_SAME(kInProgress, ncclInProgress);
RUEDA_SAME(kInt8, ncclInt8);
RUEDA_SAME(kUint8, ncclUint8);
RUEDA_SAME(kInt32, ncclInt32);
RUEDA_SAME(kUint32, ncclUint32);
RUEDA_SAME(kInt64, ncclInt64);
RUEDA_SAME(kUint64, ncclUint64);
RUEDA_SAME(kFloat16, ncclFloat16);
RUEDA_SAME(kFloat32, ncclFloat32);
RUEDA_SAME(kFloat64, ncclFloat64);
RUEDA_SAME(kSum, ncclSum);
RUEDA_SAME(kProd, ncclProd);
RUEDA_SAME(kMax, ncclMax);
RUEDA_SAME(kMin, ncclMin);
#undef RUEDA_SAME
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));

TEST(NcclAbi, is_that_of_the_header_of_nvidia) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const Config ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_LE(ours.size, theirs.size);
  EXPECT_EQ(ours.blocking, theirs.blocking);
  EXPECT_EQ(ours.net_name, theirs.netName);
  EXPECT_EQ(ours.split_share, theirs.splitShare);
}

}  // namespace
}  // namespace rueda::nccl::backend_nccl_abi_test
#else
TEST(NcclAbi, is_that_of_the_header_of_nvidia) {
  GTEST_SKIP() << "the wheel nvidia-nccl-cu12 is not installed";
}
#endif
