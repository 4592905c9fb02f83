// How ranks leave in good order, event by event.
#include "rueda/runtime/farewell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::runtime::farewell_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Do = FarewellAction;
using Phase = Farewell::Phase;

constexpr EngineState kBusy{.has_plan = false, .is_idle = false};
constexpr EngineState kIdle{.has_plan = false, .is_idle = true};
constexpr EngineState kPlanned{.has_plan = true, .is_idle = true};

TEST(Farewell, nothing_happens_until_somebody_leaves) {
  Farewell farewell(0, 2);
  EXPECT_THAT(farewell.tick(kIdle), IsEmpty());
  EXPECT_TRUE(farewell.is_running());
  EXPECT_FALSE(farewell.has_news());
}

TEST(Farewell, a_rank_asks_the_coordinator_once_and_goes_on_until_it_is_told) {
  Farewell farewell(1, 2);
  farewell.leave();
  EXPECT_TRUE(farewell.has_news());
  EXPECT_THAT(farewell.tick(kIdle), ElementsAre(Do::kAskToLeave));
  EXPECT_FALSE(farewell.has_news());
  EXPECT_THAT(farewell.tick(kIdle), IsEmpty());
  EXPECT_TRUE(farewell.is_running());
  EXPECT_THAT(farewell.on_shutdown(1, kBusy), IsEmpty());
  EXPECT_EQ(farewell.first_leaver(), 1);
  EXPECT_EQ(farewell.phase(), Phase::kDraining);
  EXPECT_THAT(farewell.tick(kBusy), IsEmpty()) << "what is ordered runs first";
  EXPECT_THAT(farewell.tick(kIdle), ElementsAre(Do::kStop));
  EXPECT_EQ(farewell.phase(), Phase::kStopped);
  EXPECT_THAT(farewell.tick(kIdle), IsEmpty());
  farewell.on_done(0);
  EXPECT_TRUE(farewell.is_closed());
}

TEST(Farewell, the_coordinator_releases_all_when_the_last_has_stopped) {
  Farewell farewell(0, 3);
  EXPECT_THAT(farewell.on_shutdown(2, kBusy), ElementsAre(Do::kTellOthers));
  EXPECT_THAT(farewell.on_shutdown(1, kBusy), IsEmpty());
  EXPECT_EQ(farewell.first_leaver(), 2);
  farewell.on_done(2);
  EXPECT_THAT(farewell.tick(kIdle), ElementsAre(Do::kStop));
  EXPECT_THAT(farewell.tick(kIdle), IsEmpty());
  farewell.on_done(1);
  EXPECT_THAT(farewell.tick(kIdle), ElementsAre(Do::kReleaseAll));
  EXPECT_TRUE(farewell.is_closed());
}

TEST(Farewell, a_single_process_job_leaves_at_once) {
  Farewell farewell(0, 1);
  farewell.leave();
  EXPECT_THAT(farewell.tick(kIdle), ElementsAre(Do::kTellOthers, Do::kStop, Do::kReleaseAll));
}

TEST(Farewell, a_learned_plan_ends_first) {
  Farewell farewell(0, 2);
  EXPECT_THAT(farewell.on_shutdown(1, kPlanned), ElementsAre(Do::kEndPlan));
  EXPECT_THAT(farewell.tick(kPlanned), IsEmpty());
  EXPECT_TRUE(farewell.is_running());
  EXPECT_THAT(farewell.tick(kBusy), ElementsAre(Do::kTellOthers));
  EXPECT_EQ(farewell.first_leaver(), 1);
  EXPECT_THAT(farewell.tick(kIdle), ElementsAre(Do::kStop));
}

TEST(Farewell, a_rank_that_is_gone_has_stopped) {
  Farewell coordinator(0, 2);
  coordinator.on_shutdown(0, kIdle);
  coordinator.tick(kIdle);
  coordinator.on_loss(1);
  EXPECT_THAT(coordinator.tick(kIdle), ElementsAre(Do::kReleaseAll));
  Farewell other(1, 3);
  other.on_shutdown(0, kIdle);
  other.tick(kIdle);
  other.on_loss(2);
  EXPECT_FALSE(other.is_closed());
  other.on_loss(0);
  EXPECT_TRUE(other.is_closed());
}

TEST(Farewell, nobody_leaves_an_epoch_that_is_over) {
  Farewell farewell(0, 2);
  farewell.close();
  farewell.leave();
  EXPECT_FALSE(farewell.has_news());
  EXPECT_THAT(farewell.tick(kIdle), IsEmpty());
  EXPECT_THAT(farewell.on_shutdown(1, kIdle), IsEmpty());
}

}  // namespace
}  // namespace rueda::runtime::farewell_test
