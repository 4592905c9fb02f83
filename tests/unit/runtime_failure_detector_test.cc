// What a loss means and what all ranks are told, event by event.
#include "rueda/runtime/failure_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "runtime_links_world.h"

namespace rueda::runtime::failure_detector_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Nanos kBegin = 100 * kSecond;
constexpr Nanos kTimeout = 8 * kSecond;

template <class T>
std::vector<T> only(const FailureDetector::Actions& actions) {
  std::vector<T> found;
  for (const FailureDetector::Action& action : actions)
    if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
  return found;
}

// A world of four, seen by one of them.
class WorldOfFour : public testing::Test {
 protected:
  explicit WorldOfFour(Rank me)
      : all_(info()), hierarchy_(me, all_), failure_detector_(hierarchy_, all_, kTimeout, kBegin) {}

  static std::vector<PeerInfo> info() {
    std::vector<PeerInfo> all(4);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      all[rank].host = std::string(1, static_cast<char>('a' + rank));
      all[rank].pid = static_cast<int32_t>(1000 + rank);
    }
    return all;
  }
  void answer(Rank from, Nanos asked_at, Nanos now) {
    failure_detector_.heard(from, now);
    failure_detector_.on_heartbeat(from, {.sent = now, .echo_sent = asked_at, .echo_received = now}, now);
  }

  std::vector<PeerInfo> all_;
  Hierarchy hierarchy_;
  FailureDetector failure_detector_;
};

class OnRankZero : public WorldOfFour {
 protected:
  OnRankZero() : WorldOfFour(0) {}
};
class OnAnotherRank : public WorldOfFour {
 protected:
  OnAnotherRank() : WorldOfFour(2) {}
};

TEST_F(OnRankZero, asks_its_children_for_a_sign_of_life_once_per_interval) {
  const auto pings = only<FailureDetector::Ping>(failure_detector_.tick(kBegin));
  ASSERT_THAT(pings, SizeIs(1));
  EXPECT_THAT(failure_detector_.tick(kBegin + 1), IsEmpty());
  EXPECT_EQ(failure_detector_.next_event(), kBegin + kSecond);
}

TEST_F(OnRankZero, a_control_channel_that_ends_names_its_rank_at_once) {
  const auto ends = only<FailureDetector::End>(failure_detector_.on_loss(3, true, "it was closed.", kBegin));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].lost, 3);
  EXPECT_EQ(ends[0].why.code, Code::kPeerLost);
  EXPECT_THAT(ends[0].why.why, HasSubstr("was lost: it was closed."));
  EXPECT_THAT(ends[0].why.why, HasSubstr("rank 3 (host d"));
}

TEST_F(OnRankZero, a_lost_rank_is_named_once) {
  const auto ends =
      only<FailureDetector::End>(failure_detector_.on_loss(3, true, "rank 3 closed its connection.", kBegin));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_THAT(ends[0].why.why, testing::EndsWith(") was lost: it closed its connection; its process has "
                                                 "probably ended, so look at its output and its exit code."));
}

TEST_F(OnRankZero, a_reset_connection_is_taken_for_the_end_of_its_process) {
  const std::string why = "rank 3 lost its connection (Connection reset by peer).";
  const auto ends = only<FailureDetector::End>(failure_detector_.on_loss(3, true, why, kBegin));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_THAT(ends[0].why.why,
              testing::EndsWith("(Connection reset by peer); its process has probably ended, "
                                "so look at its output and its exit code."));
}

TEST_F(OnRankZero, a_reported_rank_that_answers_lives_and_the_connection_is_blamed) {
  const control::Abort report{.lost = 3, .code = Code::kPeerLost, .why = "reset."};
  const auto probes = only<FailureDetector::Probe>(failure_detector_.on_abort(1, report, kBegin));
  ASSERT_THAT(probes, SizeIs(1));
  EXPECT_EQ(probes[0].of, 3);
  EXPECT_TRUE(failure_detector_.is_undecided());
  EXPECT_THAT(only<FailureDetector::End>(failure_detector_.tick(kBegin)), IsEmpty());
  failure_detector_.on_probe(3, kBegin);
  const auto ends = only<FailureDetector::End>(failure_detector_.tick(kBegin + kMillisecond));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].lost, -1);
  EXPECT_THAT(ends[0].why.why, HasSubstr("the connection between rank 1 (host b"));
  EXPECT_THAT(ends[0].why.why, HasSubstr("reset (as reported by rank 1); look at the network"));
}

TEST_F(OnRankZero, a_reported_rank_that_does_not_answer_is_lost) {
  failure_detector_.on_abort(1, {.lost = 3, .code = Code::kPeerLost, .why = "reset."}, kBegin);
  failure_detector_.tick(kBegin);
  EXPECT_THAT(failure_detector_.tick(kBegin + kAnswerWait - 1), IsEmpty());
  EXPECT_EQ(failure_detector_.next_event(), kBegin + kAnswerWait);
  const auto ends = only<FailureDetector::End>(failure_detector_.tick(kBegin + kAnswerWait));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].lost, 3);
}

TEST_F(OnRankZero, a_report_about_rank_0_is_answered_without_a_ping) {
  EXPECT_THAT(failure_detector_.on_abort(1, {.lost = 0, .code = Code::kPeerLost, .why = "reset."}, kBegin),
              IsEmpty());
  const auto ends = only<FailureDetector::End>(failure_detector_.tick(kBegin));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].lost, -1) << "rank 0 lives";
}

TEST_F(OnRankZero, the_failure_of_another_rank_is_passed_on) {
  const auto ends = only<FailureDetector::End>(
      failure_detector_.on_abort(1, {.lost = -1, .code = Code::kUnavailable, .why = "no memory."}, kBegin));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].why.why, "no memory.");
}

TEST_F(OnRankZero, a_lost_rank_that_does_not_exist_is_nobody) {
  const auto ends = only<FailureDetector::End>(
      failure_detector_.on_abort(1, {.lost = 9999, .code = Code::kPeerLost, .why = "it is gone."}, kBegin));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].lost, -1);
}

class WithRankTwoSilent : public OnRankZero {
 protected:
  // The last thing seen of its process, and when.
  FailureDetector::End lost(ProcessState state, Nanos seen) {
    for (const Rank rank : {1, 3}) failure_detector_.heard(rank, kBegin + kTimeout);
    for (Nanos now = kBegin; now <= kBegin + kTimeout; now += kSecond) {
      if (now == seen) failure_detector_.held({.of = 2, .state = state}, now);
      failure_detector_.tick(now);
    }
    const auto ends = only<FailureDetector::End>(failure_detector_.tick(kBegin + kTimeout + 1));
    EXPECT_THAT(ends, SizeIs(1));
    return ends.empty() ? FailureDetector::End() : ends[0];
  }
};

TEST_F(WithRankTwoSilent, it_is_lost_as_silent) {
  const FailureDetector::End end = lost(ProcessState::kUnknown, 0);
  EXPECT_EQ(end.lost, 2);
  EXPECT_EQ(end.loss, "silent");
  EXPECT_THAT(end.why.why, HasSubstr("it has not answered for 8 s"));
}

TEST_F(WithRankTwoSilent, it_is_lost_as_stopped_if_that_is_known) {
  const FailureDetector::End end = lost(ProcessState::kStopped, kBegin + kTimeout);
  EXPECT_EQ(end.lost, 2);
  EXPECT_EQ(end.loss, "stopped");
  EXPECT_THAT(end.why.why, HasSubstr("its process was stopped by a signal (SIGSTOP or SIGTSTP) and has not "
                                     "answered for 8 s; look for who stopped it"));
}

TEST_F(WithRankTwoSilent, it_is_lost_as_held_by_a_debugger_if_that_is_known) {
  EXPECT_EQ(lost(ProcessState::kTraced, kBegin + kTimeout).loss, "in a debugger");
}

TEST_F(WithRankTwoSilent, it_is_not_called_stopped_for_what_it_was_some_seconds_ago) {
  EXPECT_EQ(lost(ProcessState::kStopped, kBegin + 4 * kSecond).loss, "silent");
}

// What rank 2 says is missing from the first second on; host: for so long its host acknowledges nothing.
class WithRankTwoQuiet : public OnRankZero {
 protected:
  WithRankTwoQuiet() {
    for (size_t rank = 0; rank < all_.size(); ++rank) all_[rank].host_key = all_[rank].host;
  }
  // Returns the end and when it came; empty if there is none until then.
  std::optional<std::pair<FailureDetector::End, Nanos>> pass_until(Nanos until,
                                                                   const std::function<Nanos(Nanos)>& host) {
    for (; now_ <= until; now_ += kSecond / 2) {
      for (const Rank rank : {1, 3}) failure_detector_.heard(rank, now_);
      failure_detector_.host_silence(2, host(now_), now_);
      const auto ends = only<FailureDetector::End>(failure_detector_.tick(now_));
      if (!ends.empty()) return std::pair(ends[0], now_);
    }
    return std::nullopt;
  }
  Nanos now_ = kBegin;
};

TEST_F(WithRankTwoQuiet, its_process_is_not_blamed_while_its_host_acknowledges_nothing) {
  EXPECT_EQ(pass_until(kBegin + 10 * kTimeout, [](Nanos now) { return now - kBegin + kSecond; }),
            std::nullopt);
}

TEST_F(WithRankTwoQuiet, it_has_the_whole_time_to_answer_when_its_host_is_back) {
  const Nanos back = kBegin + 7 * kSecond;
  const auto host = [&](Nanos now) { return now < back ? now - kBegin + kSecond : 0; };
  EXPECT_EQ(pass_until(back + kTimeout - kSecond, host), std::nullopt);
  failure_detector_.heard(2, now_);
  EXPECT_EQ(pass_until(now_ + kTimeout, host), std::nullopt);
}

TEST_F(WithRankTwoQuiet, it_is_lost_as_silent_if_its_host_answers_all_the_time) {
  const auto end = pass_until(kBegin + 2 * kTimeout, [](Nanos) { return 0; });
  ASSERT_TRUE(end);
  EXPECT_EQ(end->first.loss, "silent");
  EXPECT_THAT(end->first.why.why, HasSubstr("it has not answered for 8 s, but its host does"));
  EXPECT_LE(end->second, kBegin + kTimeout + kSecond);
}

TEST_F(WithRankTwoQuiet, its_host_is_judged_within_a_short_limit) {
  constexpr Nanos kShort = 4 * kSecond;
  FailureDetector verdicts(hierarchy_, all_, kShort, kBegin);
  // The host was cut off after 0.5 s, which its acknowledgements show 1 s later at the latest.
  for (; now_ <= kBegin + 10 * kShort; now_ += kSecond / 2) {
    for (const Rank rank : {1, 3}) verdicts.heard(rank, now_);
    const Nanos since = kBegin + 3 * kSecond / 2;
    verdicts.host_silence(2, now_ < since ? 0 : kSecond * 7 / 10, now_);
    ASSERT_THAT(only<FailureDetector::End>(verdicts.tick(now_)), IsEmpty()) << (now_ - kBegin) / kMillisecond;
  }
}

TEST_F(WithRankTwoQuiet, with_the_shortest_limit_that_tells_hosts_a_process_is_still_told_from_one) {
  FailureDetector verdicts(hierarchy_, all_, 4 * kSecond, kBegin);
  std::vector<FailureDetector::End> ends;
  for (; ends.empty() && now_ <= kBegin + 8 * kSecond; now_ += kSecond / 2) {
    for (const Rank rank : {1, 3}) verdicts.heard(rank, now_);
    verdicts.host_silence(2, 0, now_);
    ends = only<FailureDetector::End>(verdicts.tick(now_));
  }
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_THAT(ends[0].why.why, HasSubstr("it has not answered for 4 s, but its host does"));
}

TEST_F(WithRankTwoQuiet, a_host_that_nothing_tells_of_may_be_cut_off) {
  for (; now_ <= kBegin + kTimeout + kSecond; now_ += kSecond) {
    for (const Rank rank : {1, 3}) failure_detector_.heard(rank, now_);
    failure_detector_.host_silence(2, std::nullopt, now_);
    const auto ends = only<FailureDetector::End>(failure_detector_.tick(now_));
    if (ends.empty()) continue;
    EXPECT_THAT(ends[0].why.why, HasSubstr("(stopped, overloaded or cut off; "));
    return;
  }
  ADD_FAILURE() << "it was never lost";
}

TEST_F(OnRankZero, a_host_that_was_given_up_is_unreachable) {
  const std::string why = "rank 3 has acknowledged nothing for 35 s; its host is down.";
  const auto ends = only<FailureDetector::End>(failure_detector_.on_loss(3, true, why, kBegin));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].loss, "unreachable");
}

TEST_F(OnAnotherRank, reports_a_broken_data_channel_once_and_waits_for_the_verdict) {
  const auto reports = only<FailureDetector::Report>(failure_detector_.on_loss(3, false, "reset.", kBegin));
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_EQ(reports[0].abort.lost, 3);
  EXPECT_THAT(failure_detector_.on_loss(1, false, "reset.", kBegin), IsEmpty());
  EXPECT_TRUE(failure_detector_.is_undecided());
  EXPECT_THAT(failure_detector_.tick(kBegin + kSecond), IsEmpty());
  const auto told = only<FailureDetector::End>(
      failure_detector_.on_abort(0, {.lost = 1, .code = Code::kPeerLost, .why = "rank 1 was lost."}, kBegin));
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].lost, 1);
  EXPECT_FALSE(told[0].tells_above) << "the news came from there";
}

TEST_F(OnAnotherRank, is_cut_from_a_host_that_acknowledges_nothing_and_not_by_a_connection_that_was_reset) {
  const std::vector<std::pair<std::string, Rank>> losses = {
      {"rank 1 lost its connection (Connection reset by peer).", -1},
      {"rank 1 has acknowledged nothing for 5 s.", 1}};
  for (const auto& [why, cut_from] : losses) {
    FailureDetector detector(hierarchy_, all_, kTimeout, kBegin);
    detector.on_loss(1, false, why, kBegin);
    const auto ends = only<FailureDetector::End>(
        detector.on_abort(0, {.lost = -1, .code = Code::kPeerLost, .why = "it broke."}, kBegin));
    ASSERT_THAT(ends, SizeIs(1));
    EXPECT_EQ(ends[0].cut_from, cut_from) << why;
  }
}

TEST_F(OnAnotherRank, judges_by_itself_when_no_verdict_comes) {
  failure_detector_.on_loss(3, false, "reset.", kBegin);
  const Nanos deadline = failure_detector_.next_event();
  failure_detector_.heard(0, kBegin + kSecond);
  FailureDetector::Actions actions;
  for (Nanos now = deadline; actions.empty() && now < kBegin + kTimeout; now += 100 * kMillisecond)
    actions = failure_detector_.tick(now);
  const auto ends = only<FailureDetector::End>(actions);
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].lost, 3);
}

TEST_F(OnAnotherRank, answers_the_coordinator) {
  const auto answers = only<FailureDetector::Answer>(failure_detector_.on_heartbeat(0, {.sent = 7}, kBegin));
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].sent, 7);
  EXPECT_EQ(answers[0].received, kBegin);
}

TEST_F(OnAnotherRank, a_call_that_failed_by_a_loss_waits_for_the_culprit_and_another_one_does_not) {
  const Status by_loss{Code::kPeerLost, "a channel broke."};
  EXPECT_THAT(failure_detector_.on_failure(by_loss, kBegin), IsEmpty());
  EXPECT_TRUE(failure_detector_.is_undecided());
  EXPECT_THAT(failure_detector_.on_failure(by_loss, kBegin + 2 * kSecond - 1), IsEmpty());
  EXPECT_THAT(only<FailureDetector::End>(failure_detector_.on_failure(by_loss, kBegin + 2 * kSecond)),
              SizeIs(1));
  FailureDetector fresh(hierarchy_, all_, kTimeout, kBegin);
  const auto ends = only<FailureDetector::End>(fresh.on_failure({Code::kUnavailable, "no memory."}, kBegin));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_THAT(ends[0].why.why, HasSubstr("failed: no memory."));
  EXPECT_EQ(ends[0].lost, -1);
}

TEST_F(OnAnotherRank, a_call_that_failed_because_a_host_acknowledges_nothing_loses_its_rank) {
  const Status by_silence{Code::kPeerLost, "rank 0 has acknowledged nothing for 35 s; its host is down."};
  EXPECT_THAT(failure_detector_.on_failure(by_silence, kBegin), IsEmpty());
  const auto ends =
      only<FailureDetector::End>(failure_detector_.on_failure(by_silence, kBegin + 2 * kSecond));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].lost, 0);
  EXPECT_EQ(ends[0].loss, "unreachable");
  EXPECT_THAT(ends[0].why.why,
              HasSubstr(" was lost: it has acknowledged nothing for 35 s; its host is down"));
}

// ---- hosts of two ranks: 0 and 1, 2 and 3, 4 and 5; ranks 2 and 4 lead theirs ----

class OfThreeHosts : public testing::Test {
 protected:
  OfThreeHosts() : all_(world("aabbcc", {"far"})) {}
  FailureDetector& on(Rank me) {
    hierarchy_.emplace(me, all_);
    return failure_detector_.emplace(*hierarchy_, all_, kTimeout, kBegin);
  }

  std::vector<PeerInfo> all_;
  std::optional<Hierarchy> hierarchy_;
  std::optional<FailureDetector> failure_detector_;
};

TEST_F(OfThreeHosts, a_leader_answers_a_ping_and_pings_its_own_ranks_at_once) {
  const FailureDetector::Actions actions = on(2).on_heartbeat(0, {.sent = 7}, kBegin);
  EXPECT_THAT(only<FailureDetector::Answer>(actions), SizeIs(1));
  EXPECT_THAT(only<FailureDetector::Ping>(actions), SizeIs(1));
  EXPECT_THAT(failure_detector_->tick(kBegin + kSecond), IsEmpty());
  EXPECT_THAT(only<FailureDetector::Ping>(failure_detector_->tick(kBegin + 2 * kSecond)), SizeIs(1))
      << "those below it must not take it for silent because the root is";
}

TEST_F(OfThreeHosts, a_leader_that_loses_a_rank_of_its_host_reports_it_and_the_root_names_it_at_once) {
  const auto reports =
      only<FailureDetector::Report>(on(2).on_loss(3, true, "rank 3 closed its connection.", kBegin));
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_TRUE(reports[0].abort.is_certain);
  const auto ends = only<FailureDetector::End>(on(0).on_abort(2, reports[0].abort, kBegin));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].lost, 3);
  EXPECT_THAT(ends[0].why.why, testing::EndsWith(" was lost: it closed its connection; its process has "
                                                 "probably ended, so look at its output and its exit code."));
}

TEST_F(OfThreeHosts, a_certain_loss_is_reported_after_one_that_is_not) {
  EXPECT_THAT(only<FailureDetector::Report>(on(2).on_loss(3, false, "reset.", kBegin)), SizeIs(1));
  const auto reports =
      only<FailureDetector::Report>(failure_detector_->on_loss(3, true, "it was closed.", kBegin));
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_TRUE(reports[0].abort.is_certain);
}

TEST_F(OfThreeHosts, the_ranks_below_a_leader_that_is_lost_name_the_leader_as_the_root_does) {
  const std::string why = "rank 2 closed its connection.";
  const auto below = only<FailureDetector::End>(on(3).on_loss(2, true, why, kBegin));
  const auto above = only<FailureDetector::End>(on(0).on_loss(2, true, why, kBegin));
  ASSERT_THAT(below, SizeIs(1));
  ASSERT_THAT(above, SizeIs(1));
  EXPECT_EQ(below[0].lost, 2);
  EXPECT_EQ(below[0].why.why, above[0].why.why);
}

TEST_F(OfThreeHosts, a_leader_that_was_stopped_for_a_while_costs_the_ranks_below_it_no_time) {
  FailureDetector& root = on(0);
  const Nanos back = kBegin + kTimeout - kSecond / 10;
  for (Nanos now = kBegin; now < back; now += kSecond / 2) {
    for (const Rank rank : {1, 4, 5}) root.heard(rank, now);
    EXPECT_THAT(only<FailureDetector::End>(root.tick(now)), IsEmpty());
  }
  root.heard(2, back);  // rank 3 has not answered yet
  for (Nanos now = back; now < back + kTimeout; now += kSecond / 2) {
    for (const Rank rank : {1, 2, 4, 5}) root.heard(rank, now);
    EXPECT_THAT(only<FailureDetector::End>(root.tick(now)), IsEmpty());
  }
  const auto ends = only<FailureDetector::End>(root.tick(back + kTimeout + 1));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(ends[0].lost, 3) << "it has had the whole time since";
}

TEST_F(OfThreeHosts, a_leader_that_stays_silent_is_lost_and_nobody_below_it) {
  FailureDetector& root = on(0);
  root.heard(2, kBegin + 1);
  for (Nanos now = kBegin; now <= kBegin + 2 * kTimeout; now += kSecond / 4) {
    for (const Rank rank : {1, 4, 5}) root.heard(rank, now);
    const auto ends = only<FailureDetector::End>(root.tick(now));
    if (ends.empty()) continue;
    EXPECT_EQ(ends[0].lost, 2);
    EXPECT_LE(now, kBegin + kTimeout + kSecond);
    return;
  }
  ADD_FAILURE() << "nobody was lost";
}

TEST_F(OfThreeHosts, while_the_host_of_a_leader_acknowledges_nothing_none_of_its_ranks_is_blamed) {
  FailureDetector& root = on(0);
  for (Nanos now = kBegin; now <= kBegin + 5 * kTimeout; now += kSecond / 2) {
    for (const Rank rank : {1, 4, 5}) root.heard(rank, now);
    root.host_silence(2, now - kBegin + kSecond, now);
    ASSERT_THAT(only<FailureDetector::End>(root.tick(now)), IsEmpty());
  }
}

TEST_F(OfThreeHosts, the_clocks_of_a_host_are_those_of_its_leader) {
  // The clock of the root is 1,000 ahead; the way there takes 10 and the way back 30.
  const control::Heartbeat echo{
      .sent = 1'020, .echo_sent = 5, .echo_received = 1'015, .clock = control::ClockOffset{}};
  const auto samples = only<FailureDetector::Clock>(on(2).on_heartbeat(0, echo, 50));
  ASSERT_THAT(samples, SizeIs(1));
  EXPECT_EQ(samples[0].sample.offset, 990);
  const auto pings = only<FailureDetector::Ping>(failure_detector_->on_heartbeat(0, {.sent = 7}, kBegin));
  ASSERT_THAT(pings, SizeIs(1));
  const auto below =
      only<FailureDetector::Clock>(on(3).on_heartbeat(2, {.sent = 60, .clock = pings[0].clock}, 61));
  ASSERT_THAT(below, SizeIs(1));
  EXPECT_EQ(below[0].sample.offset, 990);
  EXPECT_EQ(below[0].sample.round_trip, 40);
}

}  // namespace
}  // namespace rueda::runtime::failure_detector_test
