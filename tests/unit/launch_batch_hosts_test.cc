// Host lists as the manuals of LSF and PBS show them; neither scheduler was at hand.
#include "launch/batch_hosts.h"

#include <gmock/gmock.h>

#include <map>

#include "launch/starters/starter.h"

namespace rueda::launch::batch_hosts_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum BatchHosts::Scheduler;

using GivenVariables = std::map<std::string, std::string>;

Result<BatchHosts> hosts_given_by(const GivenVariables& variables, const GivenVariables& files = {}) {
  return read_batch_hosts(
      [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      [&](const std::string& path) -> Result<std::string> {
        const auto found = files.find(path);
        if (found == files.end()) return Status(Code::kInvalidArgument, "cannot read " + path + ".");
        return found->second;
      });
}

TEST(BatchHosts, a_line_of_the_file_of_lsf_is_a_slot) {
  const BatchHosts found = hosts_given_by({{"LSB_JOBID", "17"}, {"LSB_DJOB_HOSTFILE", "/lsf/17.hostfile"}},
                                          {{"/lsf/17.hostfile", "a\na\nb\na\n"}})
                               .value();
  EXPECT_EQ(found.scheduler, kLsf);
  EXPECT_THAT(found.hosts, ElementsAre(HostSlots{"a", 3}, HostSlots{"b", 1}));
}

TEST(BatchHosts, lsf_also_names_hosts_with_numbers) {
  EXPECT_THAT(hosts_given_by({{"LSB_JOBID", "17"}, {"LSB_MCPU_HOSTS", "a 4 b 2 "}}).value().hosts,
              ElementsAre(HostSlots{"a", 4}, HostSlots{"b", 2}));
  for (const char* broken : {"a", "a 4 b", "a four", "a 0"}) {
    const auto refused = hosts_given_by({{"LSB_JOBID", "17"}, {"LSB_MCPU_HOSTS", broken}});
    ASSERT_EQ(refused.status().code, Code::kInvalidArgument) << broken;
    EXPECT_THAT(refused.status().why, HasSubstr(std::string("LSB_MCPU_HOSTS=") + broken));
  }
}

TEST(BatchHosts, a_line_of_the_file_of_pbs_is_a_slot) {
  const GivenVariables job = {{"PBS_JOBID", "9.server"}, {"PBS_NODEFILE", "/var/spool/pbs/aux/9"}};
  const BatchHosts found =
      hosts_given_by(job, {{"/var/spool/pbs/aux/9", "n1.site\nn1.site\nn2.site\n"}}).value();
  EXPECT_EQ(found.scheduler, kPbs);
  EXPECT_THAT(found.hosts, ElementsAre(HostSlots{"n1.site", 2}, HostSlots{"n2.site", 1}));
  EXPECT_THAT(hosts_given_by(job).status().why, HasSubstr("PBS_NODEFILE: cannot read /var/spool/pbs/aux/9"));
}

TEST(BatchHosts, there_are_none_outside_a_job) {
  EXPECT_EQ(hosts_given_by({}).value().scheduler, kNone);
  EXPECT_THAT(hosts_given_by({{"LSB_JOBID", "17"}}).value().hosts, IsEmpty());
}

TEST(BlaunchCommand, needs_no_shell_on_the_host) {
  EXPECT_THAT(blaunch_command("b", "/opt/rueda"), ElementsAre("blaunch", "b", "/opt/rueda", "agent"));
}

}  // namespace
}  // namespace rueda::launch::batch_hosts_test
