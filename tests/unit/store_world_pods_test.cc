// Which rank is this pod? The variables are those that Kubernetes' Indexed Job, JobSet and Kubeflow Trainer
// set, as their documentation has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/store/world.h"
#include "store_detected.h"

namespace rueda::store::world_pods_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(StoreWorldPods, a_kubernetes_index_completes_rueda_size) {
  const auto world = detect_in(
      {{"JOB_COMPLETION_INDEX", "2"}, {"RUEDA_SIZE", "3"}, {"RUEDA_STORE", "tcp://job-0.svc:4711"}});
  EXPECT_EQ(place(world), "2/3 -1/-1 kubernetes");
}

TEST(StoreWorldPods, a_kubernetes_index_without_a_store_is_told_which_host_to_name) {
  const auto world =
      detect_in({{"JOB_COMPLETION_INDEX", "12"}, {"RUEDA_SIZE", "16"}, {"RUEDA_HOSTNAME", "a-b-12"}});
  ASSERT_EQ(world.status().code, Code::kInvalidArgument);
  EXPECT_THAT(world.status().why, AllOf(HasSubstr("RUEDA_STORE"), HasSubstr("tcp://a-b-0.SERVICE:29400")));
  const auto renamed =
      detect_in({{"JOB_COMPLETION_INDEX", "2"}, {"RUEDA_SIZE", "3"}, {"RUEDA_HOSTNAME", "node"}});
  EXPECT_THAT(renamed.status().why, HasSubstr("tcp://HOST:PORT of rank 0"));
}

TEST(StoreWorldPods, a_kubernetes_index_beyond_the_size_is_refused) {
  const auto world = detect_in(
      {{"JOB_COMPLETION_INDEX", "4"}, {"RUEDA_SIZE", "4"}, {"RUEDA_STORE", "tcp://job-0.svc:4711"}});
  EXPECT_THAT(world.status().why, HasSubstr("JOB_COMPLETION_INDEX=4 is not below RUEDA_SIZE=4"));
}

TEST(StoreWorldPods, a_kubernetes_index_with_a_store_but_no_size_is_refused) {
  const auto world = detect_in({{"JOB_COMPLETION_INDEX", "2"}, {"RUEDA_STORE", "tcp://job-0.svc:4711"}});
  ASSERT_EQ(world.status().code, Code::kInvalidArgument);
  EXPECT_THAT(world.status().why, HasSubstr("RUEDA_SIZE"));
}

TEST(StoreWorldPods, a_pod_of_an_array_job_is_a_single_process_job_with_a_warning) {
  const auto world = detect_in({{"JOB_COMPLETION_INDEX", "2"}});
  EXPECT_EQ(place(world), "0/1 0/1 single");
  EXPECT_THAT(world.value().warning, AllOf(HasSubstr("RUEDA_SIZE"), HasSubstr("pod 2")));
}

TEST(StoreWorldPods, the_launcher_in_a_pod_wins_over_its_index) {
  EXPECT_EQ(place(detect_in({{"JOB_COMPLETION_INDEX", "1"},
                             {"PET_NNODES", "2"},
                             {"PET_NODE_RANK", "1"},
                             {"PET_NPROC_PER_NODE", "2"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "train-node-0-0.train"},
                             {"MASTER_PORT", "29500"}})),
            "3/4 1/2 torchrun");
}

TEST(StoreWorldPods, a_train_job_of_one_process_per_pod_needs_no_torchrun) {
  const auto world = detect_in({{"JOB_COMPLETION_INDEX", "2"},
                                {"PET_NNODES", "4"},
                                {"PET_NODE_RANK", "2"},
                                {"PET_NPROC_PER_NODE", "1"},
                                {"PET_MASTER_ADDR", "train-node-0-0.train"},
                                {"PET_MASTER_PORT", "29400"}});
  EXPECT_EQ(place(world), "2/4 -1/-1 kubeflow");
  EXPECT_EQ(world.value().method, World::Method::kSeed);
  EXPECT_EQ(world.value().seed_host, "train-node-0-0.train");
  EXPECT_EQ(world.value().seed_variable, "PET_MASTER_ADDR");
}

TEST(StoreWorldPods, a_train_job_of_several_processes_per_pod_is_told_to_use_torchrun) {
  for (const char* per_node : {"4", "auto"}) {
    const auto world =
        detect_in({{"PET_NNODES", "2"}, {"PET_NODE_RANK", "0"}, {"PET_NPROC_PER_NODE", per_node}});
    ASSERT_EQ(world.status().code, Code::kInvalidArgument);
    EXPECT_THAT(world.status().why, AllOf(HasSubstr(per_node), HasSubstr("torchrun")));
  }
  EXPECT_EQ(place(detect_in({{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}, {"PET_NPROC_PER_NODE", "auto"}})),
            "0/1 0/1 kubeflow");
}

TEST(StoreWorldPods, names_of_jax_distributed_give_rank_size_and_place) {
  const auto world = detect_in({{"JAX_PROCESS_ID", "1"},
                                {"JAX_NUM_PROCESSES", "2"},
                                {"JAX_COORDINATOR_ADDRESS", "train-node-0-0.train:1234"}});
  EXPECT_EQ(place(world), "1/2 -1/-1 jax");
  EXPECT_EQ(world.value().seed_host, "train-node-0-0.train");
}

}  // namespace
}  // namespace rueda::store::world_pods_test
