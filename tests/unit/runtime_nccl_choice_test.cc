#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/runtime/links.h"
#include "rueda/runtime/peer_info.h"

namespace rueda::runtime::nccl_choice_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<PeerInfo> world(std::vector<int32_t> versions) {
  std::vector<PeerInfo> all(versions.size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].host = all[rank].host_key = "abc"[rank];
    all[rank].nccl.version = versions[rank];
  }
  return all;
}

TEST(NcclChoice, is_nccl_if_all_ranks_have_one_version) {
  EXPECT_TRUE(choose_nccl(world({22304, 22304, 22304})).is_used);
  EXPECT_TRUE(has_sync_channel(world({22304, 22304})));
}

TEST(NcclChoice, says_nothing_in_jobs_without_gpus) {
  const NcclChoice choice = choose_nccl(world({0, 0}));
  EXPECT_FALSE(choice.is_used);
  EXPECT_EQ(choice.why_not, "");
  EXPECT_FALSE(has_sync_channel(world({0, 0})));
}

TEST(NcclChoice, names_the_ranks_and_versions_that_differ) {
  const NcclChoice choice = choose_nccl(world({22304, 22304, 21800}));
  EXPECT_FALSE(choice.is_used);
  EXPECT_THAT(choice.why_not, AllOf(HasSubstr("rank 0 (host a"), HasSubstr("has NCCL 2.23.4"),
                                    HasSubstr("rank 2 (host c"), HasSubstr("has NCCL 2.18.0")));
}

TEST(NcclChoice, names_the_rank_that_has_none_and_why) {
  std::vector<PeerInfo> all = world({22304, 0});
  EXPECT_THAT(choose_nccl(all).why_not, HasSubstr("rank 1 (host b, pid 0) has no CUDA driver."));
  all[1].cuda_fault = "the CUDA driver is older than CUDA 11.3.";
  EXPECT_THAT(choose_nccl(all).why_not,
              HasSubstr("rank 1 (host b, pid 0) cannot use CUDA: the CUDA driver is"));
  all[1].cuda_fault.clear();
  all[1].cuda_version = 12000;
  all[1].settings.gpu_operations = "staged";
  EXPECT_THAT(choose_nccl(all).why_not, HasSubstr("rank 1 (host b, pid 0) has RUEDA_GPU_OPERATIONS=staged"));
  all[1].nccl.why_not = "it is not installed.";
  EXPECT_THAT(choose_nccl(all).why_not, HasSubstr("rank 1 (host b, pid 0) cannot use NCCL: it is not"));
  EXPECT_FALSE(has_sync_channel(all));
}

TEST(NcclChoice, follows_the_settings_of_rank_0) {
  std::vector<PeerInfo> all = world({22304, 22304});
  all[0].settings.gpu_operations = "staged";
  all[1].settings.gpu_operations = "nccl";
  EXPECT_FALSE(choose_nccl(all).is_used);
  EXPECT_EQ(choose_nccl(all).why_not, "");
  all = world({0, 0});
  all[0].settings.gpu_operations = "nccl";
  EXPECT_THAT(choose_nccl(all).why_not, HasSubstr("rank 0 (host a, pid 0) has no CUDA driver."));
}

TEST(DeviceMpiChoice, cuda_memory_is_given_to_mpi_only_where_all_ranks_can_and_rank_0_asks) {
  std::vector<PeerInfo> all(2);
  for (PeerInfo& info : all) {
    info.cuda_version = 12000;
    info.settings.cpu_operations = info.settings.gpu_operations = "mpi";
    info.host = "a";
  }
  EXPECT_TRUE(choose_device_mpi(all).is_used);
  all[1].mpi_device_fault = "Open MPI 4.1 does not say that it takes CUDA memory";
  EXPECT_FALSE(choose_device_mpi(all).is_used);
  EXPECT_THAT(choose_device_mpi(all).why_not, testing::HasSubstr("takes CUDA memory on rank 1 (host a"));
  all[0].settings.gpu_operations = "staged";
  EXPECT_FALSE(choose_device_mpi(all).is_used);
  EXPECT_EQ(choose_device_mpi(all).why_not, "");
}

}  // namespace
}  // namespace rueda::runtime::nccl_choice_test
