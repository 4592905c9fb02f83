#include "launch/environment.h"

#include <gmock/gmock.h>

#include <array>

#include "launch/starters/starter.h"

namespace rueda::launch::environment_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

TEST(TuningVariables, nothing_given_sets_nothing) { EXPECT_THAT(tuning_variables({}), IsEmpty()); }

TEST(TuningVariables, flags_go_under_both_names) {
  Tuning tuning;
  tuning.fusion_threshold_mb = 0.5;
  tuning.cycle_time_ms = 2;
  tuning.stall_check = false;
  const Variables variables = tuning_variables(tuning);
  for (const std::string prefix : {"RUEDA_", "HOROVOD_"}) {
    EXPECT_THAT(variables, Contains(Pair(prefix + "FUSION_THRESHOLD", "524288")));
    EXPECT_THAT(variables, Contains(Pair(prefix + "CYCLE_TIME", "2.0")));
    EXPECT_THAT(variables, Contains(Pair(prefix + "STALL_CHECK_DISABLE", "1")));
  }
}

TEST(TuningVariables, negative_form_pins_an_algorithm_to_off) {
  Tuning tuning;
  tuning.hierarchical_allreduce = false;
  EXPECT_THAT(tuning_variables(tuning), Contains(Pair("HOROVOD_HIERARCHICAL_ALLREDUCE", "0")));
}

TEST(TuningVariables, suboptions_need_their_main_option) {
  Tuning tuning;
  tuning.timeline_mark_cycles = true;
  tuning.autotune_warmup_samples = 5;
  EXPECT_THAT(tuning_variables(tuning), IsEmpty());
  tuning.timeline_filename = "t.json";
  tuning.autotune = true;
  EXPECT_THAT(tuning_variables(tuning), Contains(Pair("RUEDA_TIMELINE_MARK_CYCLES", "1")));
  EXPECT_THAT(tuning_variables(tuning), Contains(Pair("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "5")));
}

TEST(TuningVariables, the_log_of_the_tuner_needs_no_other_option) {
  Tuning tuning;
  tuning.autotune_log_file = "tried.csv";
  EXPECT_THAT(tuning_variables(tuning), testing::ElementsAre(Pair("HOROVOD_AUTOTUNE_LOG", "tried.csv")));
}

TEST(TuningVariables, several_interfaces_reach_the_core_and_nccl) {
  Tuning tuning;
  tuning.network_interface = "eth0,eth1";
  EXPECT_THAT(tuning_variables(tuning), Contains(Pair("RUEDA_INTERFACE", "eth0,eth1")));
  EXPECT_THAT(tuning_variables(tuning), Contains(Pair("NCCL_SOCKET_IFNAME", "eth0,eth1")));
}

TEST(TuningVariables, the_port_for_metrics_has_no_name_in_horovod) {
  Tuning tuning;
  tuning.metrics_port = 9400;
  EXPECT_THAT(tuning_variables(tuning), testing::ElementsAre(Pair("RUEDA_METRICS_PORT", "9400")));
}

TEST(Validate, value_out_of_range_is_refused_by_its_name) {
  Tuning tuning;
  tuning.cache_capacity = -1;
  EXPECT_EQ(validate(tuning).why, "cache-capacity=-1 must be >= 0");
  tuning = {};
  tuning.autotune_gaussian_process_noise = 1.5;
  EXPECT_THAT(validate(tuning).why, HasSubstr("must be in [0, 1]"));
  EXPECT_TRUE(validate({}).is_ok());
}

TEST(RankVariables, place_and_rendezvous_are_told_under_all_names) {
  const Placement place{
      .rank = 5, .local_rank = 1, .local_size = 4, .cross_rank = 2, .cross_size = 3, .host = 2};
  const RendezvousSettings rendezvous{
      .job = "j", .store_url = "tcp://h:1", .master_addr = "h", .master_port = 9};
  const Variables variables = rank_variables(place, 12, "node", rendezvous);
  for (const char* name : {"RUEDA_RANK", "HOROVOD_RANK", "RANK"})
    EXPECT_THAT(variables, Contains(Pair(name, "5")));
  for (const char* name : {"RUEDA_SIZE", "HOROVOD_SIZE", "WORLD_SIZE"})
    EXPECT_THAT(variables, Contains(Pair(name, "12")));
  EXPECT_THAT(variables, Contains(Pair("RUEDA_CROSS_RANK", "2")));
  EXPECT_THAT(variables, Contains(Pair("LOCAL_WORLD_SIZE", "4")));
  EXPECT_THAT(variables, Contains(Pair("RUEDA_STORE", "tcp://h:1")));
  EXPECT_THAT(variables, Contains(Pair("MASTER_PORT", "9")));
}

TEST(Forwarding, place_of_an_outer_job_is_not_inherited) {
  for (const char* name : {"RUEDA_RANK", "RUEDA_STORE", "RUEDA_SECRET_FILE", "TORCHELASTIC_RUN_ID",
                           "BASH_FUNC_f%%", "OLDPWD", "_HOROVOD_SECRET_KEY"})
    EXPECT_FALSE(is_forwarded(name, false)) << name;
}

TEST(Forwarding, place_among_the_ranks_of_another_launcher_is_not_inherited) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_FD", "PMIX_RANK", "PMIX_SERVER_URI2",
                           "MPI_LOCALRANKID", "MV2_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_ID"}) {
    EXPECT_FALSE(is_forwarded(name, false)) << name;
    EXPECT_FALSE(is_kept_by_agent(name)) << name;
  }
  for (const char* name : {"OMPI_MCA_btl", "PMIX_MCA_gds", "PMI_MMAP_SYNC_WAIT_TIME", "I_MPI_FABRICS"})
    EXPECT_TRUE(is_forwarded(name, false) && is_kept_by_agent(name)) << name;
}

TEST(Forwarding, what_belongs_to_a_machine_stays_there) {
  for (const char* name :
       {"HOME", "SSH_CONNECTION", "TMPDIR", "CUDA_VISIBLE_DEVICES", "NVIDIA_CUDA_VISIBLE_DEVICES"}) {
    EXPECT_TRUE(is_forwarded(name, false)) << name;
    EXPECT_FALSE(is_forwarded(name, true)) << name;
  }
  for (const char* name : {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "RUEDA_LOG_LEVEL"})
    EXPECT_TRUE(is_forwarded(name, true)) << name;
}

TEST(Forwarding, a_node_of_slurm_tells_its_devices_and_the_launcher_tells_about_the_job) {
  for (const char* name : {"SLURM_NODEID", "SLURM_JOB_GPUS", "SLURMD_NODENAME", "ROCR_VISIBLE_DEVICES"}) {
    EXPECT_FALSE(is_forwarded(name, true)) << name;
    EXPECT_TRUE(is_kept_by_agent(name)) << name;
  }
  for (const char* name : {"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}) {
    EXPECT_FALSE(is_forwarded(name, true)) << name;
    EXPECT_FALSE(is_kept_by_agent(name)) << name;
  }
  for (const char* name : {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NTASKS"}) {
    EXPECT_TRUE(is_forwarded(name, true)) << name;
    EXPECT_FALSE(is_kept_by_agent(name)) << name;
  }
  EXPECT_TRUE(is_kept_by_agent("PATH"));
}

TEST(Forwarding, an_agent_that_has_joined_keeps_its_surroundings_and_no_place_among_ranks) {
  for (const char* name : {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NTASKS", "SLURM_NODEID", "PATH"})
    EXPECT_TRUE(is_kept_by_agent(name, true)) << name;
  for (const char* name : {"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "PMI_RANK", "PMIX_RANK",
                           "OMPI_COMM_WORLD_RANK"})
    EXPECT_FALSE(is_kept_by_agent(name, true)) << name;
}

TEST(Forwarding, value_may_contain_equals_signs_and_entry_may_lack_one) {
  const std::array<const char*, 4> environment = {"A=b=c", "broken", "E=", nullptr};
  const Variables variables = forwarded_environment(environment.data(), false);
  EXPECT_THAT(variables, SizeIs(2));
  EXPECT_THAT(variables, Contains(Pair("A", "b=c")));
  EXPECT_THAT(variables, Not(Contains(Key("broken"))));
}

TEST(SshCommand, options_stand_before_the_host_and_nothing_secret_is_in_it) {
  const std::vector<std::string> command =
      ssh_command({.port = 2222, .identity_file = "/k", .args = {"-J", "gate"}}, "node", "/opt/it's/rueda");
  const std::vector<std::string> begin(command.begin(), command.begin() + 7);
  EXPECT_EQ(begin, (std::vector<std::string>{"ssh", "-J", "gate", "-p", "2222", "-i", "/k"}));
  EXPECT_THAT(command, Contains("BatchMode=yes"));
  EXPECT_EQ(command[command.size() - 3], "--");
  EXPECT_EQ(command[command.size() - 2], "node");
  EXPECT_EQ(command.back(),
            "test -x '/opt/it'\\''s/rueda' && exec '/opt/it'\\''s/rueda' agent || exec rueda agent");
}

TEST(SshCommand, other_program_gets_only_host_and_command) {
  EXPECT_THAT(ssh_command({.program = "/etc/mpi/kubexec.sh"}, "pod-0", "/r"), SizeIs(3));
}

TEST(IsThisMachine, own_names_are_and_other_loopback_addresses_are_not) {
  EXPECT_TRUE(is_this_machine("localhost"));
  EXPECT_TRUE(is_this_machine("127.0.0.1"));
  EXPECT_FALSE(is_this_machine("127.0.0.2"));
}

}  // namespace
}  // namespace rueda::launch::environment_test
