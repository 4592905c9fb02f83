// Random schedules of the membership protocol (see membership_world.h). A failure prints its seed, with which
// `World(seed, faults).run(kEvents)` repeats it. RUEDA_TEST_SCHEDULES=14000 runs 154,000 of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "../sanitizers.h"
#include "membership_world.h"

namespace rueda::membership::simulation_test {
namespace {

using simulation::Faults;
using simulation::World;

// Of each kind of faults.
uint32_t schedules() {
  if (const char* const wanted = std::getenv("RUEDA_TEST_SCHEDULES")) return std::stoul(wanted);
#if RUEDA_UNDER_ASAN  // ten times as slow
  return 200;
#else
  return 1'400;
#endif
}
constexpr int kEvents = 200;

struct Totals {
  size_t views = 0, ended = 0, with_commits = 0;
};

Totals run_all(const Faults& faults) {
  Totals totals;
  const uint32_t schedules = simulation_test::schedules();
  for (uint32_t seed = 1; seed <= schedules; ++seed) {
    World world(seed, faults);
    const std::string wrong = world.run(kEvents);
    EXPECT_EQ(wrong, "") << "seed " << seed;
    if (!wrong.empty()) return totals;
    totals.views += world.views();
    totals.ended += world.has_ended() ? 1 : 0;
    totals.with_commits += world.newest_stable() > 0 ? 1 : 0;
  }
  // What never happens proves nothing.
  EXPECT_GT(totals.views, schedules) << "hardly any schedule has formed a second view";
  EXPECT_GT(totals.with_commits, schedules / 4);
  EXPECT_LT(totals.ended, schedules);
  return totals;
}

TEST(MembershipSimulation, crashes_leave_one_list_per_number_and_the_newest_stable_commit) {
  run_all({.crash_permille = 10});
}

TEST(MembershipSimulation, replacements_join_whatever_crashes) {
  run_all({.crash_permille = 10, .spawn_permille = 30});
}

TEST(MembershipSimulation, lost_repeated_and_reordered_messages_do_no_harm) {
  run_all({.lost_percent = 30, .repeated_percent = 20, .crash_permille = 10, .spawn_permille = 20});
}

TEST(MembershipSimulation, partitions_heal) {
  run_all({.lost_percent = 10, .crash_permille = 5, .cut_permille = 30, .spawn_permille = 20});
}

TEST(MembershipSimulation, hosts_that_are_given_up_while_they_live_do_no_harm) {
  run_all({.lost_percent = 10,
           .repeated_percent = 10,
           .crash_permille = 5,
           .cut_permille = 30,
           .spawn_permille = 20,
           .loses_hosts = true});
}

TEST(MembershipSimulation, one_proposer_suffices) {
  run_all({.lost_percent = 10,
           .repeated_percent = 10,
           .crash_permille = 20,
           .cut_permille = 10,
           .spawn_permille = 40,
           .has_rivals = false});
}

TEST(MembershipSimulation, a_majority_decides_whatever_crashes) {
  run_all({.crash_permille = 10, .spawn_permille = 20, .is_by_majority = true});
}

TEST(MembershipSimulation, rivals_that_ask_a_majority_agree_over_a_bad_network) {
  run_all({.lost_percent = 30,
           .repeated_percent = 20,
           .crash_permille = 5,
           .spawn_permille = 20,
           .is_by_majority = true});
}

TEST(MembershipSimulation, no_minority_decides_behind_a_partition) {
  run_all({.lost_percent = 10, .crash_permille = 3, .cut_permille = 30, .is_by_majority = true});
}

TEST(MembershipSimulation, a_majority_leaves_out_hosts_that_live) {
  run_all({.lost_percent = 10,
           .repeated_percent = 10,
           .crash_permille = 3,
           .cut_permille = 30,
           .spawn_permille = 20,
           .loses_hosts = true,
           .is_by_majority = true});
}

TEST(MembershipSimulation, one_proposer_suffices_for_a_majority) {
  run_all({.lost_percent = 10,
           .repeated_percent = 10,
           .crash_permille = 5,
           .cut_permille = 10,
           .spawn_permille = 40,
           .has_rivals = false,
           .is_by_majority = true});
}

}  // namespace
}  // namespace rueda::membership::simulation_test
