#include "rueda/trace/live_trace.h"

#include "rueda/trace/record_file.h"
#include "trace_timeline_fixture.h"

namespace rueda::trace::live_trace_test {
namespace {

using nlohmann::json;
using timeline_fixture::begin;
using timeline_fixture::expect_balanced;
using timeline_fixture::record_call;

class LiveTraceTest : public timeline_fixture::TimelineTest {};

TEST_F(LiveTraceTest, records_of_an_older_job_are_left_alone_until_this_job_writes_there) {
  Recorder old, now;
  begin(old, 1, 6);
  ASSERT_TRUE(old.start_file(record_path(path(), 1), false).is_ok());
  record_call(old, "of the older job");
  old.stop_file();
  LiveTrace trace;
  ASSERT_TRUE(trace.open({.path = path(), .size = 2, .origin = {.job = 7, .host_key = "a"}}).is_ok());
  EXPECT_TRUE(trace.draw(Deadline::after(kSecond)));
  EXPECT_THAT(begins(path(), 1), testing::IsEmpty());
  begin(now, 1);
  ASSERT_TRUE(now.start_file(record_path(path(), 1), false).is_ok());
  record_call(now, "a");
  now.stop_file();
  EXPECT_TRUE(trace.draw(Deadline::after(kSecond)));
  trace.close();
  EXPECT_THAT(begins(path(), 1), testing::Each(testing::StartsWith("a: ")));
  EXPECT_EQ(begins(path(), 1).size(), 6u);
}

TEST_F(LiveTraceTest, a_rank_of_another_host_is_drawn_on_this_clock_once_its_own_is_known) {
  constexpr Nanos kAhead = 50 * kSecond;
  LiveTrace trace;
  ASSERT_TRUE(trace.open({.path = path(), .size = 2, .origin = {.job = 7, .host_key = "a"}}).is_ok());
  const Nanos now = monotonic_now();
  Recorder far;
  begin(far, 1, 7, "b");
  ASSERT_TRUE(far.start_file(record_path(path(), 1), false).is_ok());
  record_call(far, "a", now + kAhead + kMillisecond);
  far.stop_file();
  EXPECT_TRUE(trace.draw(Deadline::after(kSecond)));
  EXPECT_THAT(begins(path(), 1), testing::IsEmpty());
  ASSERT_TRUE(far.start_file(record_path(path(), 1), true).is_ok());
  far.record(TraceSpan{.kind = SpanKind::kClock, .begin = now + kAhead, .end = 100, .value = -kAhead});
  far.stop_file();
  EXPECT_TRUE(trace.draw(Deadline::after(kSecond)));
  trace.close();
  EXPECT_EQ(begins(path(), 1).size(), 6u);
  for (const json& object : json::parse(read(path())))
    if (object["ph"] == "B") {
      EXPECT_LT(object["ts"].get<int64_t>(), 10'000'000);
    }
}

TEST_F(LiveTraceTest, what_was_recorded_before_the_trace_began_anew_is_not_drawn) {
  constexpr Nanos kAhead = 50 * kSecond;  // the clock of rank 1
  LiveTrace trace;
  Recorder near, far;
  begin(near, 0);
  begin(far, 1, 7, "b");
  for (const char* name : {"first", "second", "third"}) {
    if (std::string(name) == "second") std::filesystem::remove(path());
    ASSERT_TRUE(
        trace.open({.path = path(), .size = 2, .origin = {.job = 7, .host_key = "a"}, .goes_on = true})
            .is_ok());
    ASSERT_TRUE(near.start_file(record_path(path(), 0), true).is_ok());
    ASSERT_TRUE(far.start_file(record_path(path(), 1), true).is_ok());
    const Nanos now = monotonic_now();
    far.record(TraceSpan{.kind = SpanKind::kClock, .begin = now + kAhead, .end = 100, .value = -kAhead});
    record_call(near, name, now);
    record_call(far, name, now + kAhead);
    near.record(instant_span(SpanKind::kReady, std::string(name) + " too"));
    near.stop_file();
    far.stop_file();
    EXPECT_TRUE(trace.draw(Deadline::after(kSecond)));
    trace.close();
  }
  for (const Rank rank : {0, 1}) {
    EXPECT_THAT(begins(path(), rank), testing::Not(testing::Contains(testing::StartsWith("first"))));
    EXPECT_EQ(begins(path(), rank).size(), rank == 0 ? 14u : 12u);
  }
}

TEST_F(LiveTraceTest, missing_records_leave_a_mark_and_a_balanced_file) {
  LiveTrace trace;
  ASSERT_TRUE(trace.open({.path = path(), .size = 1, .origin = {.job = 7, .host_key = "a"}}).is_ok());
  Recorder recorder;
  begin(recorder, 0);
  ASSERT_TRUE(recorder.start_file(record_path(path(), 0), false).is_ok());
  recorder.record(instant_span(SpanKind::kReady, "open"));
  recorder.stop_file();
  std::ofstream out(record_path(path(), 0), std::ios::app | std::ios::binary);
  const RecordSlot gap{RecordSlotKind::kGap, 0, 0, 0, 0, 12, 0};
  out.write(reinterpret_cast<const char*>(&gap), sizeof gap);
  // Of a call that is missing: there is nothing to draw.
  const RecordSlot tensor{RecordSlotKind::kTensor, 0, 0, 0, 1, 0, 4'711};
  out.write(reinterpret_cast<const char*>(&tensor), sizeof tensor);
  out.close();
  EXPECT_TRUE(trace.draw(Deadline::after(kSecond)));
  trace.close();
  const json events = json::parse(read(path()));
  expect_balanced(events);
  const auto mark = std::ranges::find_if(
      events, [](const json& object) { return object.value("name", "") == "DROPPED_EVENTS"; });
  ASSERT_NE(mark, events.end());
  EXPECT_EQ((*mark)["args"]["count"], 12);
  EXPECT_EQ(begins(path()).size(), 1u);
}

}  // namespace
}  // namespace rueda::trace::live_trace_test
