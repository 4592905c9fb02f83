// Which of several launchers is the innermost, from the processes above: no variable of one says so.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <ostream>

#include "rueda/base/process.h"
#include "rueda/store/ancestry.h"
#include "store_detected.h"

namespace rueda::store::innermost_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const Variables kShell = {{"HOME", "/root"}};
const Variables kTorchrun = {
    {"TORCHELASTIC_RUN_ID", "none"}, {"RANK", "1"},        {"WORLD_SIZE", "2"},     {"LOCAL_RANK", "1"},
    {"LOCAL_WORLD_SIZE", "2"},       {"MASTER_ADDR", "n"}, {"MASTER_PORT", "29500"}};
const Variables kTorchrunOf1 = {
    {"TORCHELASTIC_RUN_ID", "none"}, {"RANK", "0"},       {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"},
    {"LOCAL_WORLD_SIZE", "1"},       {"MASTER_ADDR", "n"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "0"},
                            {"OMPI_COMM_WORLD_SIZE", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                            {"PMIX_RANK", "0"},
                            {"PMIX_NAMESPACE", "9"}};
const Variables kOpenMpiOf1 = {{"OMPI_COMM_WORLD_RANK", "0"},
                               {"OMPI_COMM_WORLD_SIZE", "1"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                               {"PMIX_RANK", "0"},
                               {"PMIX_NAMESPACE", "8"}};
const Variables kMpich = {{"PMI_RANK", "0"},
                          {"PMI_SIZE", "4"},
                          {"PMI_FD", "6"},
                          {"MPI_LOCALRANKID", "0"},
                          {"MPI_LOCALNRANKS", "4"}};
const Variables kMpichOf1 = {{"PMI_RANK", "0"},
                             {"PMI_SIZE", "1"},
                             {"PMI_FD", "6"},
                             {"MPI_LOCALRANKID", "0"},
                             {"MPI_LOCALNRANKS", "1"}};
const Variables kPmixSingleton = {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "7"}};
const Variables kStep = {{"SLURM_JOB_ID", "7"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "0"},
                         {"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_STEP_NODELIST", "n1"}};

Process process(const std::string& program, const Variables& variables) {
  return {program, std::map<std::string, std::string, std::less<>>(variables.begin(), variables.end()), {}};
}
Process known(const std::string& program, const Variables& variables, const std::string& identity) {
  Process made = process(program, variables);
  made.identity = identity;
  return made;
}
Process unreadable(const std::string& program) { return {program, std::nullopt, {}}; }

Variables both(const Variables& outer, const Variables& inner) {
  Variables joined = inner;
  joined.insert(outer.begin(), outer.end());
  return joined;
}

// A rank of the inner launcher, which a rank of the outer one has started through `starters`, nearest first.
struct Nested {
  const char* name;
  Variables outer, inner;
  std::vector<std::string> starters;  // processes of the inner launcher above its rank
  const char* place;
  const char* line;  // "": none is told
};

void PrintTo(const Nested& nested, std::ostream* out) { *out << nested.name; }

Ancestry ancestry_of(const Nested& nested) {
  Ancestry ancestry = {process("python", both(nested.outer, nested.inner))};
  for (const std::string& starter : nested.starters) ancestry.push_back(process(starter, nested.outer));
  ancestry.push_back(process("python", nested.outer));  // the rank of the outer launcher
  ancestry.push_back(process("mpiexec", kShell));
  ancestry.push_back(unreadable("init"));
  return ancestry;
}

class StoreInnermost : public ::testing::TestWithParam<Nested> {};

TEST_P(StoreInnermost, gives_the_ranks_and_says_so) {
  const Nested& nested = GetParam();
  const Variables variables = both(nested.outer, nested.inner);
  const Result<World> found = detect_in(variables, ancestry_of(nested));
  EXPECT_EQ(place(found), nested.place);
  const std::string line = nested.line;
  EXPECT_EQ(
      found.value().warning,
      line.empty() ? "" : "launchers are nested: ranks are those of the inner one, " + line + " around it");
}

const std::vector<Nested> kNested = {
    {"mpirun_in_torchrun",
     kTorchrun,
     kOpenMpi,
     {"mpirun"},
     "0/3 0/3 openmpi",
     "openmpi (rank 0 of 3), and not of torchrun (rank 1 of 2)"},
    {"mpich_in_torchrun",
     kTorchrun,
     kMpich,
     {"hydra_pmi_proxy", "mpiexec"},
     "0/4 0/4 mpich",
     "mpich (rank 0 of 4), and not of torchrun (rank 1 of 2)"},
    {"srun_in_torchrun",
     kTorchrun,
     kStep,
     {"slurmstepd"},
     "0/2 -1/-1 slurm",
     "slurm (rank 0 of 2), and not of torchrun (rank 1 of 2)"},
    {"srun_in_mpich",
     kMpich,
     kStep,
     {"slurmstepd"},
     "0/2 -1/-1 slurm",
     "slurm (rank 0 of 2), and not of mpich (rank 0 of 4)"},
    {"srun_in_mpich_of_1",
     kMpichOf1,
     kStep,
     {"slurmstepd"},
     "0/2 -1/-1 slurm",
     "slurm (rank 0 of 2), and not of mpich (rank 0 of 1)"},
    {"srun_in_open_mpi",
     kOpenMpi,
     kStep,
     {"slurmstepd"},
     "0/2 -1/-1 slurm",
     "slurm (rank 0 of 2), and not of openmpi (rank 0 of 3)"},
    {"torchrun_in_mpirun", kOpenMpi, kTorchrun, {"torchrun"}, "1/2 1/2 torchrun", ""},
    {"torchrun_of_1_in_mpich",
     kMpich,
     kTorchrunOf1,
     {"python"},
     "0/1 0/1 torchrun",
     "torchrun (rank 0 of 1), and not of mpich (rank 0 of 4)"},
    {"mpich_in_open_mpi",
     kOpenMpi,
     kMpich,
     {"hydra_pmi_proxy", "mpiexec"},
     "0/4 0/4 mpich",
     "mpich (rank 0 of 4), and not of openmpi (rank 0 of 3)"},
    {"open_mpi_in_mpich",
     kMpich,
     kOpenMpi,
     {"prterun"},
     "0/3 0/3 openmpi",
     "openmpi (rank 0 of 3), and not of mpich (rank 0 of 4)"},
    {"one_rank_in_one_rank",
     kMpichOf1,
     kOpenMpiOf1,
     {"mpirun"},
     "0/1 0/1 openmpi",
     "openmpi (rank 0 of 1), and not of mpich (rank 0 of 1)"},
    {"one_rank_in_torchrun",
     kTorchrun,
     kMpichOf1,
     {"hydra_pmi_proxy", "mpirun"},
     "0/1 0/1 mpich",
     "mpich (rank 0 of 1), and not of torchrun (rank 1 of 2)"},
    {"torchrun_in_a_step", kStep, kTorchrun, {"torchrun"}, "1/2 1/2 torchrun", ""},
    {"mpirun_in_a_step", kStep, kOpenMpi, {"mpirun"}, "0/3 0/3 openmpi", ""},
    {"no_launcher_in_torchrun", kTorchrun, kOpenMpiOf1, {"python"}, "1/2 1/2 torchrun", ""},
    {"no_pmix_in_torchrun", kTorchrun, kPmixSingleton, {"python"}, "1/2 1/2 torchrun", ""},
    {"no_open_mpi_in_mpich", kMpich, kOpenMpiOf1, {"python"}, "0/4 0/4 mpich", ""},
};

INSTANTIATE_TEST_SUITE_P(of_two_launchers, StoreInnermost, ::testing::ValuesIn(kNested),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(StoreInnermostOf, three_launchers_names_the_two_nearest) {
  const Variables two = both(kMpich, kTorchrun), three = both(two, kOpenMpi);
  const World world =
      detect_in(three, {process("python", three), process("mpirun", two), process("python", two),
                        process("torchrun", kMpich), process("hydra_pmi_proxy", kShell)})
          .value();
  EXPECT_EQ(place(world), "0/3 0/3 openmpi");
  EXPECT_THAT(world.warning, HasSubstr("openmpi (rank 0 of 3), and not of torchrun (rank 1 of 2) around it"));
}

TEST(StoreInnermostOf, a_rank_that_looks_like_one_far_above_it_is_known_by_its_starter) {
  const Variables all = both(kMpichOf1, kTorchrun);  // mpiexec -n 1 inside torchrun inside mpiexec -n 1
  const Ancestry ancestry = {process("python", all),         process("hydra_pmi_proxy", all),
                             process("mpiexec", all),        process("python", all),
                             process("torchrun", kMpichOf1), process("hydra_pmi_proxy", kShell)};
  EXPECT_EQ(place(detect_in(all, ancestry)), "0/1 0/1 mpich");
}

TEST(StoreInnermostOf, variables_that_a_daemon_of_another_host_hands_on_are_outer) {
  const Variables all = both(kTorchrun, kMpich);
  const Ancestry remote = {process("python", all), process("hydra_pmi_proxy", kShell), unreadable("sshd")};
  EXPECT_EQ(place(detect_in(all, remote)), "0/4 0/4 mpich");
  EXPECT_THAT(detect_in(all, remote).value().warning, HasSubstr("not of torchrun (rank 1 of 2) around it"));
}

TEST(StoreInnermostOf, a_step_is_known_by_its_daemon_of_another_user) {
  const Variables all = both(kTorchrun, kStep);
  const World world = detect_in(all, {process("python", all), unreadable("slurmstepd")}).value();
  EXPECT_EQ(place(world), "0/2 -1/-1 slurm");
  EXPECT_THAT(world.warning, HasSubstr("not of torchrun (rank 1 of 2) around it"));
}

TEST(StoreInnermostOf, a_step_hands_on_what_called_srun_had_of_mpi) {
  for (const Variables& outer : {kMpich, kMpichOf1, kOpenMpi, kOpenMpiOf1}) {
    const Variables all = both(outer, kStep);
    for (const Process& daemon : {process("slurmstepd", kShell), unreadable("slurmstepd")}) {
      const World world = detect_in(all, {process("python", all), daemon, unreadable("init")}).value();
      EXPECT_EQ(place(world), "0/2 -1/-1 slurm");
      // A world of one may be what a library of MPI has left behind, and another user's daemon does not tell.
      const bool is_certain = outer == kMpich || outer == kOpenMpi || daemon.variables;
      EXPECT_EQ(!world.warning.empty(), is_certain) << world.warning;
    }
  }
}

TEST(StoreInnermostOf, variables_that_one_step_of_slurm_has_set_stay_together) {
  Variables pmi2 = both(kStep, {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_FD", "5"}, {"PMI_JOBID", "7.0"}});
  const World world = detect_in(pmi2, {process("python", pmi2), process("slurmstepd", kShell)}).value();
  EXPECT_EQ(place(world), "0/2 -1/-1 slurm");
  EXPECT_EQ(world.method, World::Method::kPmi);
  EXPECT_EQ(world.warning, "");
}

TEST(StoreInnermostOf, a_process_that_sets_the_variables_of_torchrun_for_itself_is_its_rank) {
  const Variables all = both(kOpenMpi, kTorchrun);  // torch's elastic_launch with a function
  const Ancestry ancestry = {process("python", kOpenMpi), process("python", kOpenMpi),
                             process("mpirun", kShell)};
  EXPECT_EQ(place(detect_in(all, ancestry)), "1/2 1/2 torchrun");
}

TEST(StoreInnermostOf, processes_that_do_not_tell_leave_the_documented_order) {
  const Variables all = both(kTorchrun, kOpenMpi);
  for (const Ancestry& silent :
       {Ancestry{}, Ancestry{unreadable("python")}, Ancestry{process("python", all), unreadable("sudo")},
        Ancestry{process("python", all)}, Ancestry{process("python", all), process("init", kShell)}})
    EXPECT_EQ(place(detect_in(all, silent)), "1/2 1/2 torchrun");
}

TEST(StoreInnermostOf, one_rank_inside_rueda_run_counts_if_a_launcher_has_started_it) {
  const Variables rueda = {{"RUEDA_RANK", "1"},
                           {"RUEDA_SIZE", "2"},
                           {"RUEDA_STORE_SERVED", "1"},
                           {"RUEDA_STORE", "tcp://10.0.0.1:4711"}};
  const Variables all = both(rueda, kOpenMpiOf1);
  EXPECT_EQ(place(detect_in(all, {process("python", all), process("orterun", rueda)})), "0/1 0/1 openmpi");
  EXPECT_EQ(place(detect_in(all, {process("python", all), process("python", rueda)})), "1/2 -1/-1 rueda");
}

TEST(StoreInnermostOf, a_launcher_inside_itself_is_told_by_the_process_that_started_the_rank) {
  Variables outer = kMpich;
  outer["PMI_RANK"] = "1";
  outer["PMI_SIZE"] = "2";
  outer["MPI_LOCALNRANKS"] = "2";
  const auto warning = [](const Variables& variables, const Variables& of_starter) {
    const Ancestry ancestry = {process("python", variables), process("hydra_pmi_proxy", of_starter),
                               process("mpiexec", of_starter), process("hydra_pmi_proxy", kShell)};
    EXPECT_EQ(place(detect_in(variables, ancestry)), "0/4 0/4 mpich");
    return detect_in(variables, ancestry).value().warning;
  };
  EXPECT_THAT(warning(kMpich, outer),
              HasSubstr("mpich (rank 0 of 4), and not of mpich (rank 1 of 2) around it"));
  EXPECT_EQ(warning(kMpich, kShell), "");
  EXPECT_EQ(warning(kMpich, kMpichOf1), "") << "what a library of MPI without a launcher leaves behind";
}

TEST(StoreInnermostOf, a_job_of_hydra_on_one_host_is_named_after_its_proxy) {
  const auto job = [](const Variables& variables, const Process& starter) {
    const Ancestry ancestry = {process("python", variables), known("sh", variables, "8-1"), starter};
    return detect_in(variables, ancestry).value().job;
  };
  EXPECT_EQ(job(kMpich, known("hydra_pmi_proxy", kShell, "4711-99")), "mpich-4711-99");
  EXPECT_EQ(job(kMpich, known("hydra_pmi_proxy", kShell, "4712-99")), "mpich-4712-99");
  EXPECT_EQ(job(kMpich, known("init", kShell, "1-0")), "mpich-") << "above all ranks that lost their proxy";
  Variables two_hosts = kMpich;
  two_hosts["PMI_SIZE"] = "8";
  EXPECT_EQ(job(two_hosts, known("hydra_pmi_proxy", kShell, "4711-99")), "mpich-") << "another on each host";
  Variables named = kMpich;
  named["PMI_JOBID"] = "17";
  EXPECT_EQ(job(named, known("hydra_pmi_proxy", kShell, "4711-99")), "mpich-17");
}

TEST(StoreLineage, begins_with_this_process_and_ends_above_its_parent) {
  const Ancestry ancestry = read_ancestry();
  ASSERT_GE(ancestry.size(), 2u);
  EXPECT_EQ(ancestry[0].program, "store_test");
  ASSERT_TRUE(ancestry[0].variables);
  EXPECT_EQ(ancestry[0].variables->at("PATH"), getenv("PATH"));
  const std::string pid = std::to_string(getpid()), parent = std::to_string(getppid());
  EXPECT_EQ(ancestry[0].identity, pid + "-" + std::to_string(process_began()));
  EXPECT_THAT(ancestry[1].identity, StartsWith(parent + "-"));
}

TEST(StoreLineage, shows_an_environment_as_it_was_when_the_program_began) {
  ASSERT_EQ(setenv("STORE_LINEAGE_TEST", "later", 1), 0);
  EXPECT_FALSE(read_ancestry()[0].variables->contains("STORE_LINEAGE_TEST"));
}

}  // namespace
}  // namespace rueda::store::innermost_test
