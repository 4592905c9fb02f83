#include "launch/mpirun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/environment.h"

namespace rueda::launch::mpirun_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunOptions job_of(int size, std::vector<HostSlots> hosts) {
  RunOptions options;
  options.size = size;
  options.hosts = std::move(hosts);
  options.command = {"python", "train.py"};
  return options;
}

TEST(Mpirun, families_are_told_by_their_versions) {
  EXPECT_EQ(mpirun_family("mpirun (Open MPI) 5.0.11\n"), MpirunFamily::kOpenMpi5);
  EXPECT_EQ(mpirun_family("mpirun.openmpi (OpenRTE) 4.1.4\n"), MpirunFamily::kOpenMpi4);
  EXPECT_EQ(mpirun_family("HYDRA build details:\n  Version: 4.0.2"), MpirunFamily::kMpich);
  EXPECT_EQ(mpirun_family("Intel(R) MPI Library for Linux* OS, Version 2021.19"), MpirunFamily::kIntel);
  EXPECT_EQ(mpirun_family("bash: mpirun: command not found"), std::nullopt);
}

TEST(Mpirun, open_mpi_gets_slots_and_binds_nothing) {
  const RunOptions options = job_of(4, {{"localhost", 4}});
  EXPECT_THAT(mpirun_command({}, options, {.family = MpirunFamily::kOpenMpi4, .is_root = true}),
              ElementsAre("mpirun", "--allow-run-as-root", "-np", "4", "-H", "localhost:4", "--bind-to",
                          "none", "--map-by", "slot", "python", "train.py"));
}

TEST(Mpirun, remote_ranks_of_open_mpi_get_the_variables_by_name) {
  RunOptions options = job_of(3, {{"a", 2}, {"b", 2}});
  options.ssh.port = 2222;
  const MpirunJob job{.family = MpirunFamily::kOpenMpi5, .is_remote = true, .variables = {"PATH", "HOME"}};
  EXPECT_THAT(mpirun_command({.args = {"--quiet"}, .binding = {"--bind-to", "core"}}, options, job),
              ElementsAre("mpirun", "--quiet", "-np", "3", "-H", "a:2,b:2", "--bind-to", "core", "--prtemca",
                          "plm_ssh_args", "-p 2222", "-x", "PATH", "-x", "HOME", "python", "train.py"));
}

TEST(Mpirun, mpich_gets_hosts_only_for_other_machines) {
  RunOptions options = job_of(4, {{"a", 2}, {"b", 2}});
  EXPECT_THAT(mpirun_command({.program = "mpiexec"}, options, {.family = MpirunFamily::kMpich}),
              ElementsAre("mpiexec", "-n", "4", "python", "train.py"));
  const MpirunJob remote{.family = MpirunFamily::kMpich, .is_remote = true};
  EXPECT_THAT(mpirun_command({}, options, remote),
              ElementsAre("mpirun", "-hosts", "a:2,b:2", "-n", "4", "python", "train.py"));
  options.ssh.config_file = "/etc/ssh_jobs";
  EXPECT_THAT(mpirun_variables(options, remote), ElementsAre(std::pair<std::string, std::string>(
                                                     "HYDRA_LAUNCHER_EXTRA_ARGS", "-F /etc/ssh_jobs")));
}

TEST(Mpirun, intel_gets_a_part_for_each_host) {
  const RunOptions options = job_of(3, {{"a", 2}, {"b", 2}, {"c", 2}});
  EXPECT_THAT(mpirun_command({}, options, {.family = MpirunFamily::kIntel, .is_remote = true}),
              ElementsAre("mpirun", "-host", "a", "-n", "2", "python", "train.py", ":", "-host", "b", "-n",
                          "1", "python", "train.py"));
}

TEST(Mpirun, options_about_what_mpirun_does_are_reported) {
  RunOptions options = job_of(2, {{"localhost", 2}});
  EXPECT_THAT(ignored_by_mpirun(options), IsEmpty());
  options.output.log_dir = "logs";
  EXPECT_THAT(ignored_by_mpirun(options), ElementsAre(HasSubstr("--log-dir has no effect with --mpi")));
}

}  // namespace
}  // namespace rueda::launch::mpirun_test
