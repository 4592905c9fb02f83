// How ranks leave in good order, event by event.
#include "rueda/runtime/shutdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::runtime::shutdown_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Do = ShutdownAction;
using Phase = Shutdown::Phase;

constexpr EngineState kBusy{.has_plan = false, .is_idle = false};
constexpr EngineState kIdle{.has_plan = false, .is_idle = true};
constexpr EngineState kPlanned{.has_plan = true, .is_idle = true};

TEST(Shutdown, nothing_happens_until_somebody_leaves) {
  Shutdown shutdown(0, 2, -1);
  EXPECT_THAT(shutdown.tick(kIdle), IsEmpty());
  EXPECT_TRUE(shutdown.is_running());
  EXPECT_FALSE(shutdown.has_news());
}

TEST(Shutdown, a_rank_asks_the_coordinator_once_and_goes_on_until_it_is_told) {
  Shutdown shutdown(1, 2, 0);
  shutdown.leave();
  EXPECT_TRUE(shutdown.has_news());
  EXPECT_THAT(shutdown.tick(kIdle), ElementsAre(Do::kAskToLeave));
  EXPECT_FALSE(shutdown.has_news());
  EXPECT_THAT(shutdown.tick(kIdle), IsEmpty());
  EXPECT_TRUE(shutdown.is_running());
  EXPECT_THAT(shutdown.on_shutdown(1, kBusy), IsEmpty());
  EXPECT_EQ(shutdown.first_leaver(), 1);
  EXPECT_EQ(shutdown.phase(), Phase::kDraining);
  EXPECT_THAT(shutdown.tick(kBusy), IsEmpty()) << "what is ordered runs first";
  EXPECT_THAT(shutdown.tick(kIdle), ElementsAre(Do::kStop));
  EXPECT_EQ(shutdown.phase(), Phase::kStopped);
  EXPECT_THAT(shutdown.tick(kIdle), IsEmpty());
  EXPECT_THAT(shutdown.on_done(0), ElementsAre(Do::kReleaseAll)) << "those below it";
  EXPECT_TRUE(shutdown.is_closed());
}

TEST(Shutdown, the_coordinator_releases_all_when_the_last_has_stopped) {
  Shutdown shutdown(0, 3, -1);
  EXPECT_THAT(shutdown.on_shutdown(2, kBusy), ElementsAre(Do::kTellOthers));
  EXPECT_THAT(shutdown.on_shutdown(1, kBusy), IsEmpty());
  EXPECT_EQ(shutdown.first_leaver(), 2);
  shutdown.on_done(2);
  EXPECT_THAT(shutdown.tick(kIdle), ElementsAre(Do::kStop));
  EXPECT_THAT(shutdown.tick(kIdle), IsEmpty());
  shutdown.on_done(1);
  EXPECT_THAT(shutdown.tick(kIdle), ElementsAre(Do::kReleaseAll));
  EXPECT_TRUE(shutdown.is_closed());
}

TEST(Shutdown, a_single_process_job_leaves_at_once) {
  Shutdown shutdown(0, 1, -1);
  shutdown.leave();
  EXPECT_THAT(shutdown.tick(kIdle), ElementsAre(Do::kTellOthers, Do::kStop, Do::kReleaseAll));
}

TEST(Shutdown, a_learned_plan_ends_first) {
  Shutdown shutdown(0, 2, -1);
  EXPECT_THAT(shutdown.on_shutdown(1, kPlanned), ElementsAre(Do::kEndPlan));
  EXPECT_THAT(shutdown.tick(kPlanned), IsEmpty());
  EXPECT_TRUE(shutdown.is_running());
  EXPECT_THAT(shutdown.tick(kBusy), ElementsAre(Do::kTellOthers));
  EXPECT_EQ(shutdown.first_leaver(), 1);
  EXPECT_THAT(shutdown.tick(kIdle), ElementsAre(Do::kStop));
}

TEST(Shutdown, a_rank_that_is_gone_has_stopped) {
  Shutdown coordinator(0, 2, -1);
  coordinator.on_shutdown(0, kIdle);
  coordinator.tick(kIdle);
  coordinator.on_loss(1);
  EXPECT_THAT(coordinator.tick(kIdle), ElementsAre(Do::kReleaseAll));
  Shutdown other(1, 3, 0);
  other.on_shutdown(0, kIdle);
  other.tick(kIdle);
  other.on_loss(2);
  EXPECT_FALSE(other.is_closed());
  EXPECT_THAT(other.on_loss(0), ElementsAre(Do::kReleaseAll));
  EXPECT_TRUE(other.is_closed());
}

TEST(Shutdown, a_rank_whose_parent_is_gone_waits_for_nobody_and_releases_those_below_it) {
  Shutdown leader(4, 8, 2);
  leader.on_shutdown(0, kIdle);
  leader.tick(kIdle);
  EXPECT_THAT(leader.on_loss(0), IsEmpty()) << "the root is not its parent";
  EXPECT_THAT(leader.on_loss(2), ElementsAre(Do::kReleaseAll));
  EXPECT_THAT(leader.on_done(2), IsEmpty()) << "once";
}

TEST(Shutdown, nobody_leaves_an_epoch_that_is_over) {
  Shutdown shutdown(0, 2, -1);
  shutdown.close();
  shutdown.leave();
  EXPECT_FALSE(shutdown.has_news());
  EXPECT_THAT(shutdown.tick(kIdle), IsEmpty());
  EXPECT_THAT(shutdown.on_shutdown(1, kIdle), IsEmpty());
}

}  // namespace
}  // namespace rueda::runtime::shutdown_test
