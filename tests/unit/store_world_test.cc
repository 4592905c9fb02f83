// Which launcher started this process? Environments of rueda, torchrun, Open MPI, MPICH and Slurm are as
// seen under them; those of MVAPICH2, PALS, Flux and JSM as their documentation has them; others
// are traps: variables of one launcher left in the environment by another.
#include "rueda/store/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <map>

#include "rueda/store/environment.h"
#include "rueda/store/job_id.h"
#include "rueda/store/slurm.h"
#include "rueda/store/store_url.h"
#include "store_detected.h"

namespace rueda::store::world_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Method = World::Method;

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const Variables kSrun = {{"SLURM_JOB_ID", "7"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "1"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "0"},
                         {"SLURM_NTASKS", "4"},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_STEP_NODELIST", "n[1-2]"},
                         {"SLURM_STEP_TASKS_PER_NODE", "3,1"},
                         {"SLURM_GTIDS", "0,1,2"}};
// Around mpirun and Hydra the step is that of their daemons, one a node.
const Variables kDaemonStep = with(kSrun, {{"SLURM_NTASKS", "2"},
                                           {"SLURM_STEP_NUM_TASKS", "2"},
                                           {"SLURM_LOCALID", "0"},
                                           {"SLURM_NODEID", "1"},
                                           {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                           {"SLURM_GTIDS", "1"}});
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                            {"PMIX_RANK", "3"},
                            {"PMIX_NAMESPACE", "910491649"}};
const Variables kHydra = {{"PMI_RANK", "3"},
                          {"PMI_SIZE", "4"},
                          {"PMI_FD", "6"},
                          {"MPI_LOCALRANKID", "1"},
                          {"MPI_LOCALNRANKS", "2"}};
const Variables kTorchrun = {{"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"},
                             {"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"}};

TEST(StoreWorld, an_empty_environment_is_a_single_process) {
  const World world = detect_in({}).value();
  EXPECT_EQ(place(world), "0/1 0/1 single");
  EXPECT_EQ(world.method, Method::kNone);
  EXPECT_EQ(world.warning, "");
  EXPECT_NE(world.host, "");
}

TEST(StoreWorld, rueda_variables_win_over_all_others) {
  Variables all = with(with(with(kSrun, kOpenMpi), kHydra), kTorchrun);
  all = with(all, {{"RUEDA_RANK", "1"},
                   {"RUEDA_SIZE", "2"},
                   {"RUEDA_STORE", "tcp://10.0.0.1:4711"},
                   {"RUEDA_SECRET_FILE", "/run/secret"},
                   {"RUEDA_JOB", "job7"},
                   {"RUEDA_HOSTNAME", "h1"}});
  const World world = detect_in(all).value();
  EXPECT_EQ(place(world), "1/2 -1/-1 rueda");
  EXPECT_EQ(world.method, Method::kUrl);
  EXPECT_EQ(world.url, "tcp://10.0.0.1:4711");
  EXPECT_EQ(world.secret_file, "/run/secret");
  EXPECT_EQ(world.job, "job7");
  EXPECT_EQ(world.host, "h1");
  EXPECT_EQ(world.reason, "RUEDA_RANK and RUEDA_SIZE are set");
}

TEST(StoreWorld, a_host_that_a_launcher_calls_localhost_has_its_own_name) {
  std::array<char, 256> name{};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  for (const char* variable : {"RUEDA_HOSTNAME", "HOROVOD_HOSTNAME"})
    EXPECT_EQ(detect_in({{"RUEDA_RANK", "0"}, {"RUEDA_SIZE", "1"}, {variable, "localhost"}}).value().host,
              name.data());
  EXPECT_EQ(detect_in({{"RUEDA_HOSTNAME", "localhost"}, {"HOROVOD_HOSTNAME", "h3"}}).value().host, "h3");
}

TEST(StoreWorld, rueda_ranks_without_a_store_are_refused) {
  const auto world = detect_in({{"RUEDA_RANK", "0"}, {"RUEDA_SIZE", "2"}});
  ASSERT_EQ(world.status().code, Code::kInvalidArgument);
  EXPECT_THAT(world.status().why, HasSubstr("RUEDA_STORE"));
  EXPECT_EQ(place(detect_in({{"RUEDA_RANK", "0"}, {"RUEDA_SIZE", "1"}})), "0/1 0/1 rueda");
}

TEST(StoreWorld, a_store_url_that_cannot_be_read_is_refused_by_name) {
  for (const char* url :
       {"10.0.0.1:1", "tcp://host", "tcp://:1", "tcp://h:0", "tcp://h:70000", "file://dir", "file:///"}) {
    const auto world = detect_in({{"RUEDA_RANK", "0"}, {"RUEDA_SIZE", "2"}, {"RUEDA_STORE", url}});
    ASSERT_EQ(world.status().code, Code::kInvalidArgument) << url;
    EXPECT_THAT(world.status().why, AllOf(HasSubstr("RUEDA_STORE"), HasSubstr(url)));
  }
  EXPECT_EQ(parse_store_url("tcp://[::1]:80").value().host, "::1");
  EXPECT_EQ(parse_store_url("file:///a/b/").value().dir, "/a/b");
}

TEST(StoreWorld, horovodrun_ranks_meet_at_its_rendezvous_host) {
  const auto world = detect_in({{"HOROVOD_RANK", "2"},
                                {"HOROVOD_SIZE", "4"},
                                {"HOROVOD_LOCAL_RANK", "0"},
                                {"HOROVOD_LOCAL_SIZE", "2"},
                                {"HOROVOD_HOSTNAME", "h2"},
                                {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.5"},
                                {"HOROVOD_GLOO_RENDEZVOUS_PORT", "1234"}});
  EXPECT_EQ(place(world), "2/4 0/2 horovodrun");
  EXPECT_EQ(world.value().method, Method::kSeed);
  EXPECT_EQ(world.value().seed_host, "10.0.0.5");
  EXPECT_EQ(world.value().host, "h2");
}

TEST(StoreWorld, a_rueda_store_beside_horovod_ranks_is_used) {
  const auto world =
      detect_in({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}, {"RUEDA_STORE", "file:///scratch/j"}});
  EXPECT_EQ(world.value().method, Method::kUrl);
}

TEST(StoreWorld, torchrun_wins_over_the_slurm_step_around_it) {
  const auto world = detect_in(with(kSrun, kTorchrun));
  EXPECT_EQ(place(world), "5/8 1/4 torchrun");
  EXPECT_EQ(world.value().method, Method::kSeed);
  EXPECT_EQ(world.value().seed_host, "node1");
}

TEST(StoreWorld, a_restart_under_torchrun_is_another_job) {
  const Variables restarted = with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}});
  EXPECT_NE(detect_in(kTorchrun).value().job, detect_in(restarted).value().job);
  EXPECT_EQ(detect_in(kTorchrun).value().job,
            detect_in(with(kTorchrun, {{"RANK", "6"}, {"LOCAL_RANK", "2"}})).value().job);
}

TEST(StoreWorld, srun_gives_rank_local_rank_and_first_host) {
  const auto world = detect_in(kSrun);
  EXPECT_EQ(place(world), "1/4 1/3 slurm");
  EXPECT_EQ(world.value().method, Method::kSeed);
  EXPECT_EQ(world.value().seed_host, "n1");
  EXPECT_EQ(world.value().job, "slurm-7.0");
}

TEST(StoreWorld, the_host_of_srun_stands_in_for_a_node_name_that_is_no_host_name) {
  EXPECT_EQ(detect_in(with(kSrun, {{"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}})).value().seed_fallback,
            "10.0.0.9");
}

TEST(StoreWorld, srun_tasks_are_counted_where_the_step_does_not_list_them) {
  EXPECT_EQ(place(detect_in(with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", ""}}))), "1/4 1/3 slurm");
  EXPECT_EQ(place(detect_in(with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", ""}, {"SLURM_GTIDS", ""}}))),
            "1/4 -1/-1 slurm");
}

TEST(StoreWorld, a_step_on_one_node_meets_on_loopback) {
  const auto world =
      detect_in(with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "4"}, {"SLURM_STEP_NODELIST", "n1"}}));
  EXPECT_EQ(place(world), "1/4 1/4 slurm");
  EXPECT_EQ(world.value().seed_host, "127.0.0.1");
}

TEST(StoreWorld, open_mpi_inside_salloc_is_not_mistaken_for_its_daemons_step) {
  const auto world = detect_in(with(kDaemonStep, kOpenMpi));
  EXPECT_EQ(place(world), "3/4 0/1 openmpi");
  EXPECT_EQ(world.value().method, Method::kPmix);
}

TEST(StoreWorld, hydra_inside_salloc_is_not_mistaken_for_its_daemons_step) {
  const auto world = detect_in(with(with(kDaemonStep, {{"SLURM_NTASKS", "4"}}), kHydra));
  EXPECT_EQ(place(world), "3/4 1/2 mpich");
  EXPECT_EQ(world.value().method, Method::kPmi);
}

TEST(StoreWorld, hydra_without_local_numbers_does_not_borrow_those_of_slurm) {
  const Variables hydra = {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_FD", "6"}};
  EXPECT_EQ(place(detect_in(with(kDaemonStep, hydra))), "3/4 -1/-1 mpich");
}

TEST(StoreWorld, srun_pmi2_takes_its_local_numbers_from_slurm) {
  const auto world =
      detect_in(with(kSrun, {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PMI_FD", "9"}, {"PMI_JOBID", "7.0"}}));
  EXPECT_EQ(place(world), "1/4 1/3 slurm");
  EXPECT_EQ(world.value().method, Method::kPmi);
  EXPECT_EQ(world.value().job, "slurm-7.0");
}

TEST(StoreWorld, srun_pmix_takes_its_local_numbers_from_slurm) {
  const auto world = detect_in(with(kSrun, {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}}));
  EXPECT_EQ(place(world), "1/4 1/3 slurm");
  EXPECT_EQ(world.value().method, Method::kPmix);
}

TEST(StoreWorld, a_pmix_namespace_that_is_not_the_steps_leaves_size_to_pmix) {
  const auto world = detect_in(with(kDaemonStep, {{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prterun-n1-1@1"}}));
  EXPECT_EQ(place(world), "3/-1 -1/-1 pmix");
  EXPECT_EQ(world.value().method, Method::kPmix);
}

TEST(StoreWorld, mpiexec_with_a_pmi_port_leaves_rank_and_size_to_pmi) {
  const auto world = detect_in({{"PMI_PORT", "n1:4711"}, {"PMI_ID", "2"}});
  EXPECT_EQ(place(world), "-1/-1 -1/-1 mpich");
  EXPECT_EQ(world.value().method, Method::kPmi);
}

TEST(StoreWorld, one_rank_alone_has_a_store_only_in_an_elastic_job_where_others_may_come) {
  Variables alone{{"RUEDA_RANK", "0"}, {"RUEDA_SIZE", "1"}, {"RUEDA_STORE", "tcp://127.0.0.1:7000"}};
  EXPECT_EQ(detect_in(alone).value().method, Method::kNone);
  alone["RUEDA_ELASTIC_UID"] = "localhost:0#0";
  EXPECT_EQ(place(detect_in(alone)), "0/1 0/1 rueda");
  EXPECT_EQ(detect_in(alone).value().method, Method::kUrl);
}

TEST(StoreWorld, a_rank_of_an_elastic_job_that_begins_on_one_host_can_be_reached_from_others_later) {
  Variables first{{"RUEDA_RANK", "0"},
                  {"RUEDA_SIZE", "2"},
                  {"RUEDA_STORE", "tcp://10.0.0.1:7000"},
                  {"RUEDA_LOCAL_RANK", "0"},
                  {"RUEDA_LOCAL_SIZE", "2"}};
  EXPECT_EQ(rendezvous_host(detect_in(first).value()), "127.0.0.1");
  first["RUEDA_ELASTIC_UID"] = "a:0#0";
  EXPECT_EQ(rendezvous_host(detect_in(first).value()), "10.0.0.1");
}

TEST(StoreWorld, an_sbatch_script_without_srun_is_single_and_says_so) {
  const auto world = detect_in({{"SLURM_JOB_ID", "7"},
                                {"SLURM_PROCID", "0"},
                                {"SLURM_NTASKS", "4"},
                                {"SLURM_LOCALID", "0"},
                                {"SLURM_GTIDS", "0"},
                                {"SLURM_JOB_NODELIST", "n[1-2]"}});
  EXPECT_EQ(place(world), "0/1 0/1 single");
  EXPECT_THAT(world.value().warning, AllOf(HasSubstr("4 tasks"), HasSubstr("srun")));
}

TEST(StoreWorld, the_shell_of_salloc_is_single_and_says_so) {
  const auto world = detect_in({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}, {"SLURM_TASKS_PER_NODE", "2"}});
  EXPECT_EQ(place(world), "0/1 0/1 single");
  EXPECT_THAT(world.value().warning, HasSubstr("2 tasks"));
}

TEST(StoreWorld, an_interactive_step_is_single) {
  const Variables one = with(kSrun, {{"SLURM_STEP_NUM_TASKS", "1"},
                                     {"SLURM_PROCID", "0"},
                                     {"SLURM_LOCALID", "0"},
                                     {"SLURM_STEP_TASKS_PER_NODE", "1"}});
  EXPECT_EQ(place(detect_in(one)), "0/1 0/1 slurm");
  const auto pty = detect_in(with(kSrun, {{"SLURM_PTY_PORT", "40000"}}));
  EXPECT_EQ(place(pty), "0/1 0/1 single");
  EXPECT_THAT(pty.value().warning, HasSubstr("srun"));
}

TEST(StoreWorld, bare_ranks_meet_at_their_master) {
  const auto world =
      detect_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h1"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(place(world), "1/2 -1/-1 environment");
  EXPECT_EQ(world.value().method, Method::kSeed);
  EXPECT_EQ(world.value().seed_host, "h1");
  EXPECT_EQ(detect_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).status().code, Code::kInvalidArgument);
}

TEST(StoreWorld, bare_ranks_that_differ_from_the_slurm_step_are_pointed_out) {
  const auto world = detect_in(with(kSrun, {{"RANK", "0"}, {"WORLD_SIZE", "16"}, {"MASTER_ADDR", "h1"}}));
  EXPECT_EQ(place(world), "1/4 1/3 slurm");
  EXPECT_THAT(world.value().warning, HasSubstr("WORLD_SIZE=16"));
}

TEST(StoreWorld, other_launchers_are_known) {
  EXPECT_EQ(place(detect_in({{"MV2_COMM_WORLD_RANK", "1"},
                             {"MV2_COMM_WORLD_SIZE", "2"},
                             {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                             {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}})),
            "1/2 1/2 mvapich2");
  EXPECT_EQ(place(detect_in({{"JSM_NAMESPACE_RANK", "1"},
                             {"JSM_NAMESPACE_SIZE", "4"},
                             {"JSM_NAMESPACE_LOCAL_RANK", "1"},
                             {"JSM_NAMESPACE_LOCAL_SIZE", "2"},
                             {"PMIX_NAMESPACE", "j"},
                             {"PMIX_RANK", "1"}})),
            "1/4 1/2 jsm");
  EXPECT_EQ(place(detect_in({{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "4"}, {"RUEDA_STORE", "tcp://h:1"}})),
            "1/4 -1/-1 flux");
  EXPECT_EQ(place(detect_in({{"PALS_RANKID", "1"},
                             {"PMI_RANK", "1"},
                             {"PMI_SIZE", "4"},
                             {"PMI_FD", "5"},
                             {"PMI_LOCAL_RANK", "1"},
                             {"PMI_LOCAL_SIZE", "2"}})),
            "1/4 1/2 pals");
  EXPECT_THAT(detect_in({{"PALS_RANKID", "1"}}).status().why, HasSubstr("PALS_RANKID"));
}

TEST(StoreWorld, half_a_pair_is_refused_and_both_variables_are_named) {
  const std::vector<std::pair<const char*, const char*>> pairs = {
      {"RUEDA_RANK", "RUEDA_SIZE"},
      {"HOROVOD_RANK", "HOROVOD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"RANK", "WORLD_SIZE"},
      {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
      {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
      {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"}};
  for (const auto& [rank, size] : pairs)
    for (const char* present : {rank, size}) {
      const auto world = detect_in({{present, "1"}});
      ASSERT_EQ(world.status().code, Code::kInvalidArgument) << present;
      EXPECT_THAT(world.status().why, AllOf(HasSubstr(rank), HasSubstr(size)));
    }
  EXPECT_THAT(detect_in({{"PMIX_RANK", "1"}}).status().why, HasSubstr("PMIX_NAMESPACE"));
}

TEST(StoreWorld, contradictory_numbers_are_refused_by_name) {
  const std::vector<std::pair<Variables, const char*>> bad = {
      {{{"RUEDA_RANK", "2"}, {"RUEDA_SIZE", "2"}}, "RUEDA_RANK=2"},
      {{{"RUEDA_RANK", "-1"}, {"RUEDA_SIZE", "2"}}, "RUEDA_RANK='-1'"},
      {{{"RUEDA_RANK", "0"}, {"RUEDA_SIZE", "two"}}, "RUEDA_SIZE='two'"},
      {{{"RUEDA_RANK", "0"}, {"RUEDA_SIZE", "99999999"}}, "RUEDA_SIZE='99999999'"},
      {{{"RUEDA_RANK", "0"}, {"RUEDA_SIZE", "0"}}, "RUEDA_SIZE=0"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}), "OMPI_COMM_WORLD_LOCAL_RANK=1"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "5"}}), "OMPI_COMM_WORLD_LOCAL_SIZE=5"},
      {with(kTorchrun, {{"MASTER_PORT", "x"}}), "MASTER_PORT=x"},
      {with(kTorchrun, {{"MASTER_PORT", "0"}}), "MASTER_PORT=0"},
      {with(kTorchrun, {{"MASTER_PORT", "99999"}}), "MASTER_PORT=99999"},
      {with(kSrun, {{"SLURM_PROCID", "4"}}), "SLURM_PROCID=4"},
      {with(kSrun, {{"SLURM_PROCID", ""}}), "SLURM_PROCID"},
      {with(kSrun, {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}}), "PMIX_RANK=2"},
  };
  for (const auto& [variables, named] : bad) {
    const auto world = detect_in(variables);
    ASSERT_EQ(world.status().code, Code::kInvalidArgument) << named;
    EXPECT_THAT(world.status().why, HasSubstr(named));
  }
}

TEST(StoreWorld, slurm_node_lists_are_expanded) {
  EXPECT_THAT(expand_node_list("n1").value(), ElementsAre("n1"));
  EXPECT_THAT(expand_node_list("n[1-3,7],m08").value(), ElementsAre("n1", "n2", "n3", "n7", "m08"));
  EXPECT_THAT(expand_node_list("n[08-10]x").value(), ElementsAre("n08x", "n09x", "n10x"));
  EXPECT_THAT(expand_node_list("r[0-1]n[1-2]").value(), ElementsAre("r0n1", "r0n2", "r1n1", "r1n2"));
  for (const char* bad : {"", "n[1-2", "n[2-1]", "n[a-b]", "n1,,n2", "n[0-4294967295]", "n[]"})
    EXPECT_EQ(expand_node_list(bad).status().code, Code::kInvalidArgument) << bad;
}

TEST(StoreWorld, slurm_task_counts_are_expanded) {
  EXPECT_THAT(expand_tasks_per_node("3,1").value(), ElementsAre(3, 1));
  EXPECT_THAT(expand_tasks_per_node("2(x3),1").value(), ElementsAre(2, 2, 2, 1));
  for (const char* bad : {"", "x", "1(x", "1(x2", "1(x99999999)", "-1"})
    EXPECT_EQ(expand_tasks_per_node(bad).status().code, Code::kInvalidArgument) << bad;
}

TEST(StoreWorld, job_ids_are_short_plain_and_stable) {
  EXPECT_EQ(make_job_id("slurm-7.0"), "slurm-7.0");
  for (const std::string& text :
       {std::string(500, 'x'), std::string("a/b"), std::string("two words"), std::string("..")}) {
    EXPECT_LE(make_job_id(text).size(), kMaxJobBytes);
    EXPECT_TRUE(make_job_id(text).starts_with("job-")) << text;
    EXPECT_EQ(make_job_id(text), make_job_id(text));
  }
  EXPECT_NE(make_job_id("a/b"), make_job_id("a/c"));
}

TEST(StoreWorld, seed_ports_are_sixteen_different_ones_that_no_program_is_given_by_chance) {
  constexpr int kNodePorts = 30'000;  // of Kubernetes; Linux gives ports from 32768 on
  for (int i = 0; i < 2'000; ++i) {
    const std::string job = "slurm-" + std::to_string(i);
    auto ports = seed_ports(job);
    EXPECT_EQ(ports, seed_ports(job));
    std::ranges::sort(ports);
    EXPECT_EQ(std::ranges::adjacent_find(ports), ports.end());
    EXPECT_GE(ports.front(), 20'000);
    EXPECT_LT(ports.back(), kNodePorts);
  }
  EXPECT_NE(seed_ports("a"), seed_ports("b"));
}

}  // namespace
}  // namespace rueda::store::world_test
