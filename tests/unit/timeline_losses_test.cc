// Records that are missing: which, where, and what of the job is whole.
#include "timeline/losses.h"

#include <gmock/gmock.h>

#include <cerrno>

#include "timeline_planned_job.h"

namespace rueda::timeline::losses_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

TEST(Losses, say_how_many_records_are_missing_where_and_why) {
  Losses losses;
  losses.note(3 * kSecond, true);
  losses.note(4 * kSecond, false);
  losses.add({.records = 100, .error = ENOSPC});
  losses.add({.records = 20, .error = 0});
  EXPECT_EQ(losses_text(losses.all(), kSecond),
            "120 records from 3 s after it began to the end, because its disk was full (No space left on "
            "device)");
  losses.note(6 * kSecond, false);
  losses.note(7 * kSecond, true);
  ASSERT_EQ(losses.all().size(), 1u);
  EXPECT_EQ(losses.all()[0].mark_before, 3 * kSecond);
  EXPECT_EQ(losses.all()[0].mark_after, 7 * kSecond);
  EXPECT_THAT(losses_text(losses.all(), kSecond), HasSubstr("from 3 s after it began to 5 s, because"));
  losses.add({.records = 1});
  EXPECT_THAT(losses_text(losses.all(), kSecond), HasSubstr("121 records in 2 places from 3 s"));
  Losses slow;
  slow.add({.records = 1});
  EXPECT_EQ(losses_text(slow.all(), 0),
            "1 record from its beginning to the end, because the disk was slower than the job");
  EXPECT_EQ(losses_text({}, 0), "");
}

TEST(Losses, a_pause_is_told_apart_and_an_epoch_may_end_with_one) {
  Losses losses;
  losses.note(3 * kSecond, true);
  losses.add({.records = 0});
  EXPECT_TRUE(losses.all().empty()) << "nothing came after it";
  losses.note(8 * kSecond, true);
  EXPECT_EQ(losses_text(losses.all(), kSecond), "");
  EXPECT_EQ(pauses_text(losses.all(), kSecond), "The timeline was stopped from 2 s to 7 s after it began.");
  losses.add({.records = 0});
  losses.note(9 * kSecond, true);
  EXPECT_THAT(pauses_text(losses.all(), kSecond), HasSubstr("after it began, and 1 time more."));
  EXPECT_EQ(pauses_text({}, 0), "");
}

TEST(Losses, of_many_are_bounded_and_none_is_forgotten) {
  Losses losses;
  for (Nanos i = 1; i <= 10'000; ++i) {
    losses.note(i, true);
    losses.add({.records = 2});
  }
  EXPECT_LE(losses.all().size(), 256u);
  EXPECT_THAT(losses_text(losses.all(), 0), HasSubstr("20000 records"));
}

TEST(Losses, the_longest_part_without_gaps_is_found) {
  const auto of = [](std::vector<Stretch> gaps) {
    const Stretch whole = longest_whole({10, 100}, std::move(gaps));
    return std::pair(whole.from, whole.until);
  };
  EXPECT_EQ(of({}), std::pair(Nanos{10}, Nanos{100}));
  EXPECT_EQ(of({{40, 50}}), std::pair(Nanos{50}, Nanos{100}));
  EXPECT_EQ(of({{90, INT64_MAX}, {20, 30}}), std::pair(Nanos{30}, Nanos{90}));
  EXPECT_EQ(of({{INT64_MIN, 20}, {15, 60}, {50, 55}}), std::pair(Nanos{60}, Nanos{100}));
  EXPECT_EQ(of({{5, INT64_MAX}}), std::pair(Nanos{10}, Nanos{10}));
}

class LostRecords : public SummaryTest {
 protected:
  // Takes these slots out of the file of a rank and puts a gap in their place.
  static void lose(const std::string& path, size_t from, size_t until) {
    std::vector<trace::RecordSlot> slots(std::filesystem::file_size(path) / sizeof(trace::RecordSlot));
    auto* const bytes = reinterpret_cast<char*>(slots.data());
    const auto size = static_cast<std::streamsize>(slots.size() * sizeof(trace::RecordSlot));
    std::ifstream(path, std::ios::binary).read(bytes, size);
    const auto is_step = [](const trace::RecordSlot& slot) {
      return slot.kind == trace::RecordSlotKind::kSpan &&
             slot.detail == static_cast<uint8_t>(SpanKind::kStep);
    };
    size_t steps = 0;
    std::vector<trace::RecordSlot> kept;
    bool has_gap = false;
    for (const trace::RecordSlot& slot : slots) {
      const bool is_lost = steps > from && steps <= until;
      steps += is_step(slot) ? 1 : 0;
      const bool is_name = slot.kind == trace::RecordSlotKind::kName;
      if (!is_lost || is_name) kept.push_back(slot);
      if (is_lost && !has_gap) {
        has_gap = true;
        kept.push_back({trace::RecordSlotKind::kGap, 0, ENOSPC, 0, 0, 77, 0});
      }
    }
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(kept.data()),
               static_cast<std::streamsize>(kept.size() * sizeof(trace::RecordSlot)));
  }
};

TEST_F(LostRecords, name_the_rank_and_only_whole_steps_are_divided) {
  JobPlan plan;
  plan.steps = 40;
  // Without a gap ranks are in the same step: rank 1 is late in each of them.
  plan.step = [](Rank rank, int64_t) { return StepPlan{.compute = rank == 1 ? 18.0 : 10.0}; };
  const std::string base = write(plan);
  lose(trace::record_path(base, 1), 10, 15);
  const auto summary = summarize_files({base});
  ASSERT_TRUE(summary.is_ok()) << summary.status().why;
  EXPECT_THAT(summary.value().remarks,
              Contains(AllOf(HasSubstr("Rank 1 (host a) lost 77 records from "),
                             HasSubstr("because its disk was full (No space left on device); the file is "),
                             HasSubstr("rank1.rec."))));
  EXPECT_THAT(summary.value().remarks, Contains(HasSubstr("Only the longest part without a gap")));
  EXPECT_EQ(summary.value().steps, 24) << "after the gap";
  EXPECT_NEAR(summary.value().step_length / 1e6, 23, 0.1);
  EXPECT_NEAR(summary.value().by_rank[1].cost / 1e6, 8, 0.01);
  EXPECT_EQ(summary.value().by_rank[0].cost, 0);
  lose(trace::record_path(base, 0), 12, 41);
  const auto both = summarize_files({base});
  EXPECT_EQ(both.value().steps, 10) << "before the gaps";
  EXPECT_THAT(both.value().remarks, Contains(HasSubstr("Rank 0 (host a) lost 77 records")));
}

TEST_F(LostRecords, a_gap_that_cannot_be_is_refused) {
  for (const int64_t records : {int64_t{-5}, int64_t{1} << 50}) {
    const std::string base = write({});
    const trace::RecordSlot gap{trace::RecordSlotKind::kGap, 0, ENOSPC, 0, 0, records, 0};
    std::ofstream(trace::record_path(base, 1), std::ios::binary | std::ios::app)
        .write(reinterpret_cast<const char*>(&gap), sizeof gap);
    const auto summary = summarize_files({base});
    ASSERT_TRUE(summary.is_ok()) << summary.status().why;
    EXPECT_THAT(summary.value().remarks, Contains(HasSubstr("the length of a gap is out of range")));
    EXPECT_GT(summary.value().steps, 10) << "what comes before is used";
  }
}

TEST_F(LostRecords, a_file_that_holds_nothing_is_told) {
  const std::string base = write({});
  const trace::RecordSlot first{trace::RecordSlotKind::kFile, 0, ENOSPC, 0, trace::kFileMagic,
                                trace::kRecordVersion,        9};
  std::ofstream(trace::record_path(base, 1), std::ios::binary)
      .write(reinterpret_cast<const char*>(&first), sizeof first);
  std::ofstream(trace::record_path(base, 2)).close();
  const auto summary = summarize_files({base});
  ASSERT_TRUE(summary.is_ok()) << summary.status().why;
  EXPECT_THAT(summary.value().remarks, Contains(HasSubstr("rank1.rec has lost all of its records (9)")));
  EXPECT_THAT(summary.value().remarks, Contains(HasSubstr("rank2.rec is empty: the disk was full")));
}

}  // namespace
}  // namespace rueda::timeline::losses_test
