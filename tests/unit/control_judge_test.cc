// What rank 0 says about ranks for which others wait, with a clock of the test's own.
#include "rueda/control/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::control::judge_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Nanos kBegin = 100 * kSecond, kHour = 3'600 * kSecond;

std::string who(Rank rank) { return "rank " + std::to_string(rank) + " (host b)"; }

class FourRanks : public testing::Test {
 protected:
  FourRanks() : judge_({.me = 0, .ranks = 4, .limit = 5 * kSecond}, kBegin) {}

  // Time passes in quarters of a second; every rank but the silent ones says its facts once a second.
  std::vector<Verdict> pass(Nanos duration) {
    std::vector<Verdict> said;
    for (const Nanos end = now_ + duration; now_ < end;) {
      now_ += kSecond / 4;
      for (Rank rank = 0; rank < 4; ++rank) {
        if (rank == silent_) continue;
        judge_.heard(rank, now_);
        if (now_ % kSecond == 0) tell(rank);
      }
      for (StalledTensor& wait : waits_) wait.age += kSecond / 4;
      if (seen_.state != ProcessState::kUnknown && now_ % (kSecond / 2) == 0) judge_.on_peer(seen_, now_);
      for (Verdict& verdict : judge_.tick(waits_, now_)) said.push_back(std::move(verdict));
    }
    return said;
  }
  void tell(Rank rank) {
    Facts& facts = facts_[static_cast<size_t>(rank)];
    facts.use.at = now_ + rank * kHour;
    facts.use.cpu += rank == busy_ ? kSecond : kSecond / 100;
    if (rank == swapping_) facts.use.major_faults += 500;
    if (facts.plan_stuck_for > 0) facts.plan_stuck_for += kSecond;
    judge_.on_facts(rank, facts, now_);
  }
  void wait_for(const std::string& name, std::vector<Rank> waiting, std::vector<Rank> missing) {
    waits_.push_back({name, "ALLREDUCE", 0, 0, std::move(missing), std::move(waiting)});
  }

  Judge judge_;
  Nanos now_ = kBegin;
  std::vector<Facts> facts_ = std::vector<Facts>(4);
  std::vector<StalledTensor> waits_;
  PeerProcess seen_;
  Rank silent_ = -1, busy_ = -1, swapping_ = -1;
};

TEST_F(FourRanks, nothing_is_said_while_nobody_waits_for_long) {
  EXPECT_THAT(pass(20 * kSecond), IsEmpty());
  wait_for("x", {0, 1, 2}, {3});
  EXPECT_THAT(pass(4 * kSecond), IsEmpty());
}

TEST_F(FourRanks, a_rank_that_does_nothing_is_missing_and_said_to_be_so_once) {
  wait_for("x", {0, 1, 2}, {3});
  const auto said = pass(20 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kMissing);
  EXPECT_EQ(said[0].rank, 3);
  EXPECT_EQ(said[0].tensor, "x");
  EXPECT_LE(said[0].age, 6 * kSecond);
  EXPECT_THAT(said[0].waiting, ElementsAre(0, 1, 2));
  waits_.clear();
  const auto over = pass(15 * kSecond);
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_TRUE(over[0].is_over);
  EXPECT_THAT(verdict_line(over[0], who), HasSubstr("rank 3 (host b) goes on after 20.0 s."));
}

TEST_F(FourRanks, a_rank_whose_input_is_late_in_each_step_is_said_once_then_every_five_minutes_with_sums) {
  std::vector<Verdict> said;
  const auto train = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      facts_[1].input_for = kSecond;
      wait_for("x", {0, 2, 3}, {1});
      for (Verdict& one : pass(6 * kSecond)) said.push_back(one);
      waits_.clear();
      facts_[1].input_for = 0;
      for (Verdict& one : pass(kSecond)) said.push_back(one);
    }
  };
  train(40);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kLateInInput);
  EXPECT_THAT(verdict_line(said[0], who), HasSubstr("rank 1 (host b): it has not submitted x, in which"));
  train(20);
  ASSERT_THAT(said, SizeIs(2));
  EXPECT_THAT(verdict_line(said[1], who),
              HasSubstr("rank 1 (host b): others have waited for it 44 times in 306.0 s, for 263.0 s in all; "
                        "it has not submitted x"));
  const auto over = pass(20 * kSecond);
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_EQ(
      verdict_line(over[0], who),
      "Verdict: late in input: rank 1 (host b) is no longer late: others have waited for it 60 times in "
      "419.0 s, for 360.0 s in all.");
}

TEST_F(FourRanks, a_late_rank_that_then_never_comes_is_said_again_although_five_minutes_have_not_passed) {
  wait_for("x", {0, 1, 2}, {3});
  EXPECT_THAT(pass(6 * kSecond), SizeIs(1));
  waits_.clear();
  EXPECT_THAT(pass(60 * kSecond), SizeIs(1)) << "it goes on";
  wait_for("y", {0, 1, 2}, {3});
  EXPECT_THAT(pass(25 * kSecond), IsEmpty());
  const auto said = pass(10 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_FALSE(said[0].is_over);
  EXPECT_EQ(said[0].tensor, "y");
  EXPECT_EQ(said[0].times, 2);
  EXPECT_THAT(pass(100 * kSecond), IsEmpty());
}

TEST_F(FourRanks, a_rank_that_is_late_for_two_reasons_in_turn_is_said_once_for_each) {
  std::vector<Verdict> said;
  for (int step = 0; step < 30; ++step) {
    busy_ = step % 2 == 0 ? 2 : -1;
    wait_for("x", {0, 1, 3}, {2});
    for (Verdict& one : pass(9 * kSecond)) said.push_back(one);
    waits_.clear();
    pass(kSecond);
  }
  ASSERT_THAT(said, SizeIs(2));
  EXPECT_EQ(said[0].fault, Fault::kLateInCompute);
  EXPECT_EQ(said[1].fault, Fault::kMissing);
}

TEST_F(FourRanks, a_rank_that_is_late_is_not_over_while_its_process_is_stopped) {
  wait_for("x", {0, 1, 2}, {3});
  EXPECT_THAT(pass(6 * kSecond), SizeIs(1));
  seen_ = {.of = 3, .state = ProcessState::kStopped};
  silent_ = 3;
  const auto said = pass(60 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kStopped);
}

TEST_F(FourRanks, a_stopped_rank_of_an_elastic_job_is_said_to_be_ended_in_5_s) {
  for (const bool ends_them : {false, true}) {
    judge_ = Judge({.me = 0, .ranks = 4, .ends_stopped_ranks = ends_them}, now_);
    seen_ = {.of = 3, .state = ProcessState::kStopped};
    silent_ = 3;
    const auto said = pass(3 * kSecond);
    ASSERT_THAT(said, SizeIs(1));
    EXPECT_THAT(verdict_line(said[0], who),
                HasSubstr(ends_them ? "after 5 s rueda run ends it, because the job is elastic"
                                    : "after RUEDA_PEER_TIMEOUT_SECONDS it counts as lost"));
  }
}

TEST_F(FourRanks, a_rank_that_uses_a_core_is_late_in_compute) {
  busy_ = 2;
  wait_for("x", {0, 1, 3}, {2});
  const auto said = pass(10 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kLateInCompute);
  EXPECT_EQ(said[0].core_percent, 100);
}

TEST_F(FourRanks, what_a_rank_did_before_others_waited_does_not_make_it_late_in_compute) {
  busy_ = 2;
  pass(10 * kSecond);
  busy_ = -1;
  wait_for("x", {0, 1, 3}, {2});
  const auto said = pass(10 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kMissing);
}

TEST_F(FourRanks, an_open_wait_for_input_is_late_in_input_however_busy_the_rank_is) {
  busy_ = 1;
  facts_[1].input_for = kSecond;
  wait_for("x", {0, 2, 3}, {1});
  const auto said = pass(10 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kLateInInput);
}

TEST_F(FourRanks, a_rank_that_reads_its_memory_back_is_swapping) {
  swapping_ = 1;
  facts_[1].use.swapped_bytes = 1 << 30;
  wait_for("x", {0, 2, 3}, {1});
  const auto said = pass(10 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kSwapping);
}

TEST_F(FourRanks, opposite_order_names_the_smaller_side_and_both_tensors) {
  for (Facts& facts : facts_) facts.is_blocked = true;
  wait_for("x", {0, 1, 3}, {2});
  wait_for("y", {2}, {0, 1, 3});
  const auto said = pass(10 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kOrder);
  EXPECT_EQ(said[0].rank, 2);
  EXPECT_EQ(said[0].tensor, "x");
  EXPECT_EQ(said[0].other, "y");
}

TEST_F(FourRanks, a_rank_that_others_hold_up_is_not_blamed) {
  facts_[1].is_blocked = true;
  wait_for("in a set", {1}, {2});  // 2 is missing there, and so 1 does not come to x
  wait_for("x", {0, 3}, {1, 2});
  for (const Verdict& verdict : pass(10 * kSecond)) EXPECT_EQ(verdict.rank, 2);
}

TEST_F(FourRanks, a_stopped_process_is_named_within_two_seconds_and_not_called_late_as_well) {
  wait_for("x", {0, 1, 2}, {3});
  seen_ = {.of = 3, .state = ProcessState::kStopped};
  silent_ = 3;
  const auto said = pass(2 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kStopped);
  EXPECT_THAT(pass(20 * kSecond), IsEmpty());
  ASSERT_THAT(judge_.held(now_), SizeIs(1));
  EXPECT_EQ(judge_.held(now_)[0].of, 3);
  EXPECT_THAT(judge_.held(now_ + 10 * kSecond), IsEmpty()) << "old news";
}

TEST_F(FourRanks, a_process_that_is_stopped_again_and_again_is_said_three_times_and_then_if_it_lasts) {
  const auto stop = [&](Nanos stopped, Nanos runs) {
    seen_ = {.of = 3, .state = ProcessState::kStopped};
    std::vector<Verdict> said = pass(stopped);
    seen_.state = ProcessState::kRuns;
    for (Verdict& verdict : pass(runs)) said.push_back(std::move(verdict));
    return said;
  };
  for (int time = 1; time <= 3; ++time) {
    const std::vector<Verdict> said = stop(4 * kSecond, 6 * kSecond);
    ASSERT_THAT(said, SizeIs(2)) << "it is stopped, and goes on";
    EXPECT_EQ(said[0].is_last_for_now, time == 3);
    const std::string later =
        "; this is the third time in 300.0 s, so the next is said only if it lasts for 10.0 s.";
    EXPECT_EQ(verdict_line(said[0], who).ends_with(later), time == 3);
    EXPECT_TRUE(said[1].is_over);
  }
  for (int time = 0; time < 10; ++time) EXPECT_THAT(stop(4 * kSecond, 6 * kSecond), IsEmpty());
  EXPECT_THAT(stop(14 * kSecond, 6 * kSecond), SizeIs(2)) << "it lasts";
  EXPECT_THAT(pass(300 * kSecond), IsEmpty());
  EXPECT_THAT(stop(4 * kSecond, 6 * kSecond), SizeIs(2)) << "five minutes have passed";
}

// What it sends when it goes on comes all at once, and others have waited for it for long.
TEST_F(FourRanks, a_rank_that_was_stopped_is_not_late_as_soon_as_it_goes_on) {
  busy_ = 3;
  pass(5 * kSecond);
  wait_for("x", {0, 1, 2}, {3});
  seen_ = {.of = 3, .state = ProcessState::kStopped};
  silent_ = 3;
  ASSERT_THAT(pass(9 * kSecond), SizeIs(1));
  seen_.state = ProcessState::kRuns;
  silent_ = -1;
  for (int i = 0; i < 4; ++i) tell(3);
  std::vector<Verdict> said = pass(4 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_TRUE(said[0].is_over);
  said = pass(3 * kSecond);
  ASSERT_THAT(said, SizeIs(1)) << "now it is late, and others have waited for 5 s since it goes on";
  EXPECT_EQ(said[0].fault, Fault::kLateInCompute);
  EXPECT_LE(said[0].core_percent, 100);
  EXPECT_LT(said[0].age, 8 * kSecond);
}

TEST_F(FourRanks, a_process_that_a_debugger_holds_is_told_apart_from_a_stopped_one) {
  seen_ = {.of = 1, .state = ProcessState::kTraced};
  const auto said = pass(2 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kDebugger);
}

TEST_F(FourRanks, a_process_that_was_stopped_for_a_moment_is_not_named) {
  judge_.on_peer({.of = 1, .state = ProcessState::kStopped}, now_);
  EXPECT_THAT(pass(10 * kSecond), IsEmpty());
}

TEST_F(FourRanks, the_rank_that_judges_runs_whatever_others_have_seen) {
  seen_ = {.of = 0, .state = ProcessState::kStopped};
  EXPECT_THAT(pass(10 * kSecond), IsEmpty());
}

// Of another host's process nobody says that it goes on: the news about it stop, and are old when they come.
TEST_F(FourRanks, how_long_a_process_was_stopped_does_not_count_the_time_until_that_is_known) {
  for (int look = 0; look < 8; ++look) {
    now_ += kSecond / 2;
    judge_.on_peer({.of = 1, .state = ProcessState::kStopped}, now_, now_ - kSecond);
    judge_.tick({}, now_);
  }
  for (Rank rank = 0; rank < 4; ++rank) judge_.heard(rank, now_);
  const auto said = pass(5 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_TRUE(said[0].is_over);
  EXPECT_EQ(said[0].age, 7 * kSecond / 2);
}

TEST_F(FourRanks, a_rank_that_does_not_answer_is_silent) {
  silent_ = 2;
  const auto said = pass(6 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].fault, Fault::kSilent);
  EXPECT_EQ(said[0].rank, 2);
}

TEST_F(FourRanks, a_rank_of_another_host_is_silent_when_that_host_would_be_known_to_be_cut_off) {
  judge_ = Judge({.me = 0, .ranks = 4, .limit = 5 * kSecond, .hosts = {0, 0, 2, 2}}, now_);
  silent_ = 2;
  EXPECT_THAT(pass(6 * kSecond), IsEmpty());
  ASSERT_THAT(pass(2 * kSecond), SizeIs(1));
  now_ += 100 * kSecond;
  judge_ = Judge({.me = 0, .ranks = 4, .limit = 5 * kSecond, .hosts = {0, 0, 2, 2}}, now_);
  silent_ = 1;
  EXPECT_THAT(pass(6 * kSecond), SizeIs(1)) << "of its own host";
}

TEST_F(FourRanks, a_rank_whose_transfer_does_not_go_on_is_not_blamed_for_the_next_collective) {
  facts_[2].is_blocked = true;
  wait_for("next", {0, 1, 3}, {2});
  EXPECT_THAT(pass(20 * kSecond), IsEmpty());
  facts_[2].is_blocked = false;
  EXPECT_THAT(pass(4 * kSecond), SizeIs(1)) << "now it is missing";
}

TEST_F(FourRanks, rank_0_blames_nobody_for_the_time_in_which_it_was_stopped_itself) {
  pass(kSecond);
  now_ += 100 * kSecond;
  EXPECT_THAT(judge_.tick(waits_, now_), IsEmpty());
}

TEST_F(FourRanks, the_rank_that_is_behind_in_a_learned_plan_is_named) {
  for (Facts& facts : facts_) facts.plan_number = 1, facts.plan_started = 7, facts.plan_stuck_for = 1;
  facts_[2] = {};
  facts_[2].plan_number = 1;
  facts_[2].plan_started = 6;
  facts_[2].plan_lacks = "grad";
  const auto said = pass(12 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].rank, 2);
  EXPECT_EQ(said[0].tensor, "grad");
}

TEST_F(FourRanks, nan_is_blamed_on_the_rank_that_had_it_first_and_only_once) {
  facts_[1].not_finite = NotFinite{.tensor = "later", .element = 0, .call = 12};
  facts_[3].not_finite = NotFinite{.tensor = "grad", .element = 17, .call = 11};
  const auto said = pass(10 * kSecond);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].rank, 3);
  EXPECT_THAT(verdict_line(said[0], who), HasSubstr("grad, first in element 17"));
}

TEST(Facts, survive_the_wire_and_are_bounded) {
  const Facts facts{.use = {.at = 9, .cpu = 1, .major_faults = 2, .swapped_bytes = 3},
                    .input_for = 4,
                    .is_blocked = true,
                    .plan_number = 5,
                    .plan_started = 6,
                    .plan_open = 21,
                    .plan_stuck_for = 7,
                    .plan_lacks = "t",
                    .participation = {.at = 16, .in_world = 17, .in_any = 18},
                    .peer_processes = {{.of = 8, .state = ProcessState::kTraced}},
                    .not_finite = NotFinite{.tensor = "n", .element = 9, .call = 10},
                    .unreached = {{.of = 19, .age = 20}}};
  const Bytes raw = encode(facts);
  const Result<Facts> read = decode_facts(raw);
  ASSERT_TRUE(read.is_ok());
  EXPECT_EQ(encode(read.value()), raw);
  for (size_t size = 0; size < raw.size(); ++size)
    EXPECT_FALSE(decode_facts(std::span(raw).first(size)).is_ok()) << size;
}

}  // namespace
}  // namespace rueda::control::judge_test
