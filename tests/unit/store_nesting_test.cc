// Launchers inside launchers: the innermost gives the ranks, and rank 0 says so.
#include <gmock/gmock.h>

#include "store_detected.h"

namespace rueda::store::nesting_test {
namespace {

using ::testing::HasSubstr;

Variables joined(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const Variables kRuedaRun = {{"RUEDA_RANK", "1"},
                             {"RUEDA_SIZE", "2"},
                             {"HOROVOD_RANK", "1"},
                             {"HOROVOD_SIZE", "2"},
                             {"RANK", "1"},
                             {"WORLD_SIZE", "2"},
                             {"RUEDA_HOSTNAME", "h1"},
                             {"RUEDA_JOB", "job-1"},
                             {"RUEDA_SECRET_FILE", "/s"},
                             {"RUEDA_STORE_SERVED", "1"},
                             {"RUEDA_STORE", "tcp://10.0.0.1:4711"}};
const Variables kMpirunOf3 = {{"OMPI_COMM_WORLD_RANK", "0"},
                              {"OMPI_COMM_WORLD_SIZE", "3"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                              {"PMIX_RANK", "0"},
                              {"PMIX_NAMESPACE", "9"}};
const Variables kTorchrunOf4 = {
    {"TORCHELASTIC_RUN_ID", "none"}, {"RANK", "0"},        {"WORLD_SIZE", "4"},     {"LOCAL_RANK", "0"},
    {"LOCAL_WORLD_SIZE", "4"},       {"MASTER_ADDR", "n"}, {"MASTER_PORT", "29500"}};
const Variables kStepOf2 = {{"SLURM_JOB_ID", "7"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_PROCID", "0"},
                            {"SLURM_STEP_NUM_TASKS", "2"},
                            {"SLURM_STEP_NODELIST", "n1"}};

TEST(StoreNesting, a_launcher_inside_rueda_run_gives_the_ranks) {
  const World mpi = detect_in(joined(kRuedaRun, kMpirunOf3)).value();
  EXPECT_EQ(place(mpi), "0/3 0/3 openmpi");
  EXPECT_EQ(mpi.method, World::Method::kPmix);  // and not at the store of rueda run
  EXPECT_EQ(mpi.secret_file, "");
  EXPECT_NE(mpi.job, "job-1");
  EXPECT_NE(mpi.host, "h1");
  EXPECT_EQ(
      mpi.warning,
      "launchers are nested: ranks are those of the inner one, openmpi (rank 0 of 3), and not of rueda run "
      "(rank 1 of 2) around it");
  EXPECT_EQ(place(detect_in(joined(kRuedaRun, kTorchrunOf4))), "0/4 0/4 torchrun");
  EXPECT_EQ(place(detect_in(joined(kRuedaRun, kStepOf2))), "0/2 -1/-1 slurm");
}

TEST(StoreNesting, one_of_several_is_known_whichever_launcher_has_started_several) {
  const auto is_one = [](const Variables& variables) {
    return is_one_of_several([&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  Variables one_of_torchrun = kTorchrunOf4, one_of_rueda = kRuedaRun, one_step = kStepOf2;
  one_of_torchrun["RANK"] = one_of_rueda["RUEDA_RANK"] = one_of_rueda["HOROVOD_RANK"] = "0";
  one_of_torchrun["WORLD_SIZE"] = one_of_torchrun["LOCAL_WORLD_SIZE"] = one_of_rueda["RUEDA_SIZE"] = "1";
  one_of_rueda["HOROVOD_SIZE"] = one_step["SLURM_STEP_NUM_TASKS"] = "1";
  for (const Variables& several : {kMpirunOf3, kTorchrunOf4, kStepOf2, kRuedaRun})
    EXPECT_TRUE(is_one(several));
  for (const Variables& alone : {Variables(), one_of_torchrun, one_step}) EXPECT_FALSE(is_one(alone));
  // Around it or inside it, one process was started: mpirun -np 3 torchrun --nproc-per-node=1 rueda run.
  EXPECT_TRUE(is_one(joined(kMpirunOf3, one_of_torchrun)));
  EXPECT_TRUE(is_one(joined(one_of_torchrun, kStepOf2)));
  EXPECT_TRUE(is_one(joined(one_of_rueda, kMpirunOf3)));
  EXPECT_FALSE(is_one(joined(one_of_torchrun, one_step)));
}

TEST(StoreNesting, what_a_library_of_mpi_leaves_behind_is_no_launcher) {
  const Variables singleton = {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}};
  const World world = detect_in(joined(kRuedaRun, singleton)).value();
  EXPECT_EQ(place(world), "1/2 -1/-1 rueda");
  EXPECT_TRUE(world.is_store_served);
  EXPECT_EQ(world.warning, "");
}

TEST(StoreNesting, a_rank_set_by_hand_is_the_innermost) {
  Variables by_hand = joined(kRuedaRun, kMpirunOf3);
  by_hand.erase("RUEDA_STORE_SERVED");
  EXPECT_EQ(place(detect_in(by_hand)), "1/2 -1/-1 rueda");
}

TEST(StoreNesting, torchrun_inside_mpirun_says_so_on_rank_0) {
  EXPECT_THAT(detect_in(joined(kMpirunOf3, kTorchrunOf4)).value().warning,
              HasSubstr("torchrun (rank 0 of 4), and not of openmpi (rank 0 of 3)"));
  EXPECT_EQ(detect_in(joined(joined(kMpirunOf3, kTorchrunOf4), {{"RANK", "1"}, {"LOCAL_RANK", "1"}}))
                .value()
                .warning,
            "");
}

TEST(StoreNesting, one_launcher_says_nothing_not_even_in_a_step_of_slurm) {
  for (const Variables& alone : {kRuedaRun, kMpirunOf3, kTorchrunOf4, kStepOf2, joined(kStepOf2, kMpirunOf3),
                                 joined(kStepOf2, kTorchrunOf4)})
    EXPECT_EQ(detect_in(alone).value().warning, "");
}

TEST(StoreNesting, a_requeued_job_of_slurm_is_another_job) {
  const Variables first = joined(kStepOf2, {{"SLURM_RESTART_COUNT", "0"}});
  const Variables again = joined(kStepOf2, {{"SLURM_RESTART_COUNT", "1"}});
  EXPECT_EQ(detect_in(kStepOf2).value().job, detect_in(first).value().job);
  EXPECT_EQ(detect_in(again).value().job, "slurm-7.0-restart1");
}

}  // namespace
}  // namespace rueda::store::nesting_test
