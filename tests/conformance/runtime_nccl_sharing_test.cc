// Whole engines whose ranks share a GPU, or have MIG instances of one: when NCCL takes them, and what happens
// otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nccl_job.h"
#include "rueda/memory/cuda/deferred_frees.h"

namespace rueda::runtime::nccl_sharing_test {
namespace {

using nccl_job::OnDevice;
using nccl_job::soon;
using nccl_job::with_nccl;
using nccl_test::control;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using NcclSharing = nccl_job::NcclJob;

std::vector<float> filled(Rank rank) { return std::vector<float>(1000, static_cast<float>(rank + 1)); }

TEST_F(NcclSharing, two_ranks_on_one_gpu_go_through_host_memory_and_are_named) {
  const Job job(2, "shm,tcp");
  const size_t before = cuda_test::device_bytes();  // windows of other tests are never freed
  testing::internal::CaptureStderr();
  job.run(
      [before](Engine& engine, Rank rank) {
        OnDevice mine(0);
        for (int i = 0; i < 3; ++i) {
          const auto data = mine.vector(filled(rank));
          const int64_t handle = must_submit(engine, mine.tensor(Collective::kAllreduce, "grad", *data));
          ASSERT_TRUE(engine.wait(handle, soon()).is_ok());
          EXPECT_THAT(data->read(), Each(3.0F));
          engine.operations().release(handle);
        }
        cuda::wait_for_frees(soon());
        EXPECT_LT(cuda_test::device_bytes(), before + (size_t{64} << 20))
            << "the memory for packed tensors is kept";
      },
      with_nccl());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("rank 0 and rank 1 use the same GPU"), HasSubstr("go through host memory")));
  EXPECT_EQ(control().starts, 0) << "no communicator is begun";
}

TEST_F(NcclSharing, ranks_on_two_instances_of_a_gpu_use_nccl_from_2_30_on) {
  for (const int version : {22805, 23000}) {
    cuda_test::fake<void(bool)>("fake_cuda_make_instances")(true);
    control().version = version;
    const Job job(2, "shm,tcp");
    job.run(
        [](Engine& engine, Rank rank) {
          OnDevice mine(rank);
          const auto data = mine.vector(filled(rank));
          const int64_t handle = must_submit(engine, mine.tensor(Collective::kAllreduce, "grad", *data));
          ASSERT_TRUE(engine.wait(handle, soon()).is_ok());
          EXPECT_THAT(data->read(), Each(3.0F));
        },
        with_nccl());
    EXPECT_EQ(control().starts, version == 23000 ? 2 : 0) << version;
  }
}

}  // namespace
}  // namespace rueda::runtime::nccl_sharing_test
