// The stages of a call over NCCL, without NCCL: which follows which.
#include "rueda/backend/nccl/call_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace rueda::nccl::backend_nccl_stages_test {
namespace {

using testing::ElementsAre;

bool ends_call(Stage stage) { return stage == Stage::kDone || stage == Stage::kHandedOver; }

// All stages of a call. `look` sets the facts as they are after a stage; `turn` counts the stages.
std::vector<Stage> stages_of(bool may_be_cancelled,
                             const std::function<void(Facts&, Stage, int turn)>& look) {
  std::vector<Stage> stages = {first_stage(may_be_cancelled)};
  Facts facts{.has_room = true};
  for (int turn = 0; !ends_call(stages.back()) && turn < 100; ++turn) {
    look(facts, stages.back(), turn);
    stages.push_back(stage_after(stages.back(), facts));
  }
  return stages;
}

TEST(NcclStages, a_known_set_launches_at_once) {
  const auto stages = stages_of(false, [](Facts& facts, Stage, int) { facts.is_connected = true; });
  EXPECT_THAT(stages, ElementsAre(Stage::kStarting, Stage::kPreparing, Stage::kReducing, Stage::kStoring,
                                  Stage::kDone));
}

TEST(NcclStages, a_call_that_may_be_cancelled_meets_first) {
  const auto stages = stages_of(true, [](Facts& facts, Stage, int) { facts.is_connected = true; });
  EXPECT_THAT(stages, ElementsAre(Stage::kSyncing, Stage::kStarting, Stage::kPreparing, Stage::kReducing,
                                  Stage::kStoring, Stage::kDone));
  EXPECT_EQ(stage_after(Stage::kLeaving, {}), Stage::kDone);
}

TEST(NcclStages, a_new_set_is_set_up_connected_and_probed) {
  int probes = 0;
  const auto stages = stages_of(false, [&](Facts& facts, Stage stage, int) {
    facts.has_probe = stage == Stage::kConnecting || (stage == Stage::kProbing && ++probes < 2);
  });
  EXPECT_THAT(stages, ElementsAre(Stage::kStarting, Stage::kSettingUp, Stage::kConnecting, Stage::kProbing,
                                  Stage::kProbing, Stage::kPreparing, Stage::kReducing, Stage::kStoring,
                                  Stage::kDone));
}

TEST(NcclStages, members_that_cannot_use_nccl_hand_the_call_over) {
  const auto is_found_out = [](Facts& facts, Stage stage, int) {
    facts.is_refused = stage == Stage::kSettingUp;
  };
  EXPECT_THAT(stages_of(false, is_found_out),
              ElementsAre(Stage::kStarting, Stage::kSettingUp, Stage::kHandedOver));
  const auto is_known = [](Facts& facts, Stage, int) { facts.is_refused = true; };
  EXPECT_THAT(stages_of(false, is_known), ElementsAre(Stage::kStarting, Stage::kHandedOver));
}

TEST(NcclStages, each_part_waits_for_room) {
  const auto look = [](Facts& facts, Stage stage, int turn) {
    facts.is_connected = true;
    facts.has_part = turn < 6;
    facts.has_room = stage != Stage::kStoring;
  };
  EXPECT_THAT(stages_of(false, look),
              ElementsAre(Stage::kStarting, Stage::kPreparing, Stage::kReducing, Stage::kStoring,
                          Stage::kWaiting, Stage::kReducing, Stage::kStoring, Stage::kDone));
  EXPECT_EQ(stage_after(Stage::kWaiting, {.has_room = false}), Stage::kWaiting);
}

TEST(NcclStages, a_hierarchical_allreduce_adds_between_hosts) {
  const auto look = [](bool has_share) {
    return [has_share](Facts& facts, Stage, int) {
      facts.is_connected = facts.is_hierarchical = true;
      facts.has_share = has_share;
    };
  };
  EXPECT_THAT(stages_of(false, look(true)),
              ElementsAre(Stage::kStarting, Stage::kPreparing, Stage::kReducing, Stage::kBetween,
                          Stage::kGathering, Stage::kStoring, Stage::kDone));
  EXPECT_THAT(stages_of(false, look(false)),
              ElementsAre(Stage::kStarting, Stage::kPreparing, Stage::kReducing, Stage::kGathering,
                          Stage::kStoring, Stage::kDone));
}

TEST(NcclStages, an_adasum_climbs_its_tree) {
  int levels = 2;
  const auto look = [&](Facts& facts, Stage stage, int) {
    facts.is_connected = true;
    facts.lacks_memory = stage == Stage::kPreparing;
    facts.has_exchange = asks_nccl(stage) && --levels > 0;
  };
  EXPECT_THAT(stages_of(false, look),
              ElementsAre(Stage::kStarting, Stage::kPreparing, Stage::kAgreeing, Stage::kReducing,
                          Stage::kExchanging, Stage::kStoring, Stage::kDone));
}

TEST(NcclStages, an_adasum_without_memory_is_handed_over) {
  const auto look = [](Facts& facts, Stage, int) { facts.is_connected = facts.lacks_memory = true; };
  EXPECT_THAT(stages_of(false, look),
              ElementsAre(Stage::kStarting, Stage::kPreparing, Stage::kAgreeing, Stage::kHandedOver));
}

TEST(NcclStages, a_stage_ends_in_one_way) {
  for (int value = 0; value <= static_cast<int>(Stage::kDone); ++value) {
    const auto stage = static_cast<Stage>(value);
    EXPECT_LE(is_immediate(stage) + is_syncing(stage) + asks_nccl(stage) + (stage == Stage::kWaiting), 1);
  }
}

TEST(NcclStagesDeathTest, nothing_follows_the_end) {
  EXPECT_DEATH((void)stage_after(Stage::kDone, {}), "this stage ends a call");
}

}  // namespace
}  // namespace rueda::nccl::backend_nccl_stages_test
