#include <gmock/gmock.h>

#include <map>

#include "launch/slurm_allocation.h"
#include "launch/starters/starter.h"

namespace rueda::launch::slurm_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using GivenVariables = std::map<std::string, std::string>;

Result<std::vector<SlurmNode>> read(const GivenVariables& variables) {
  return read_slurm_allocation([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

GivenVariables salloc() {
  return {{"SLURM_JOB_ID", "7"},
          {"SLURM_JOB_NODELIST", "n[1-2]"},
          {"SLURM_TASKS_PER_NODE", "2,1"},
          {"SLURM_JOB_CPUS_PER_NODE", "4(x2)"}};
}

TEST(SlurmAllocation, names_the_nodes_with_their_tasks_and_cpus) {
  EXPECT_THAT(read(salloc()).value(), ElementsAre(SlurmNode{"n1", 2, 4}, SlurmNode{"n2", 1, 4}));
}

TEST(SlurmAllocation, a_heterogeneous_job_has_the_nodes_of_all_components) {
  const GivenVariables variables = {{"SLURM_JOB_ID", "7"},
                                    {"SLURM_HET_SIZE", "2"},
                                    {"SLURM_JOB_NODELIST", "n1"},  // sbatch: of the first component alone
                                    {"SLURM_TASKS_PER_NODE", "2"},
                                    {"SLURM_JOB_NODELIST_HET_GROUP_0", "n1"},
                                    {"SLURM_TASKS_PER_NODE_HET_GROUP_0", "2"},
                                    {"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0", "4"},
                                    {"SLURM_JOB_NODELIST_HET_GROUP_1", "n[2-3]"},
                                    {"SLURM_TASKS_PER_NODE_HET_GROUP_1", "1(x2)"},
                                    {"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1", "1(x2)"}};
  EXPECT_THAT(read(variables).value(),
              ElementsAre(SlurmNode{"n1", 2, 4, 0}, SlurmNode{"n2", 1, 1, 1}, SlurmNode{"n3", 1, 1, 1}));
  GivenVariables shared = variables;
  shared["SLURM_JOB_NODELIST_HET_GROUP_1"] = "n[1-2]";
  EXPECT_THAT(read(shared).value(), ElementsAre(SlurmNode{"n1", 3, 4, 0}, SlurmNode{"n2", 1, 1, 1}));
  GivenVariables broken = variables;
  broken["SLURM_TASKS_PER_NODE_HET_GROUP_1"] = "1";
  EXPECT_THAT(read(broken).status().why, HasSubstr("nodes of SLURM_JOB_NODELIST_HET_GROUP_1=n[2-3]"));
}

TEST(SlurmAllocation, there_is_none_outside_a_job_and_in_a_task_of_several) {
  EXPECT_THAT(read({}).value(), IsEmpty());
  GivenVariables task = salloc();
  task["SLURM_STEP_ID"] = "0";
  task["SLURM_STEP_NUM_TASKS"] = "3";
  EXPECT_THAT(read(task).value(), IsEmpty());
  task["SLURM_STEP_NUM_TASKS"] = "1";  // the interactive step of salloc
  EXPECT_THAT(read(task).value(), testing::SizeIs(2));
}

TEST(SlurmAllocation, lists_that_do_not_fit_are_refused) {
  GivenVariables wrong = salloc();
  wrong["SLURM_TASKS_PER_NODE"] = "2";
  EXPECT_THAT(read(wrong).status().why, HasSubstr("SLURM_TASKS_PER_NODE=2 does not fit the 2 nodes"));
  wrong["SLURM_TASKS_PER_NODE"] = "many";
  EXPECT_FALSE(read(wrong).is_ok());
}

TEST(SlurmAllocation, ranks_take_the_tasks_and_the_cpus_if_there_are_more_ranks_than_tasks) {
  const auto nodes = read(salloc()).value();
  EXPECT_THAT(slots_of(nodes, 0), ElementsAre(HostSlots{"n1", 2}, HostSlots{"n2", 1}));
  EXPECT_THAT(slots_of(nodes, 3), ElementsAre(HostSlots{"n1", 2}, HostSlots{"n2", 1}));
  EXPECT_THAT(slots_of(nodes, 4), ElementsAre(HostSlots{"n1", 4}, HostSlots{"n2", 4}));
}

TEST(SrunCommand, starts_one_agent_on_one_node_with_all_of_its_cpus) {
  const std::vector<std::string> command = srun_command({.name = "n2", .cpus = 4}, "/opt/rueda");
  EXPECT_EQ(command.front(), "srun");
  for (const char* option : {"--overlap", "--nodelist=n2", "--ntasks=1", "--unbuffered", "--cpus-per-task=4"})
    EXPECT_THAT(command, Contains(option));
  EXPECT_EQ(command.back(), "test -x '/opt/rueda' && exec '/opt/rueda' agent || exec rueda agent");
}

TEST(SrunCommand, names_the_component_of_a_heterogeneous_job) {
  EXPECT_THAT(srun_command({.name = "n2", .het_group = 1}, "/opt/rueda"), Contains("--het-group=1"));
  EXPECT_THAT(srun_command({.name = "n2"}, "/opt/rueda"), Not(Contains(testing::StartsWith("--het-group"))));
}

TEST(SrunCommand, options_of_the_whole_job_do_not_reach_it) {
  for (const char* name : {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_CPU_BIND_TYPE", "SLURM_LABELIO"})
    EXPECT_FALSE(is_passed_to_srun(name)) << name;
  for (const char* name : {"SLURM_JOB_ID", "SLURM_CONF", "PATH"})
    EXPECT_TRUE(is_passed_to_srun(name)) << name;
}

}  // namespace
}  // namespace rueda::launch::slurm_test
