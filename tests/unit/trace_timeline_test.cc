#include "rueda/trace/timeline.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "../soon.h"
#include "rueda/base/unique_fd.h"
#include "rueda/trace/chrome_format.h"
#include "rueda/trace/record_file.h"
#include "rueda/trace/trace_file.h"
#include "trace_timeline_fixture.h"

namespace rueda::trace::timeline_test {
namespace {

TEST(PathOfView, later_views_have_files_of_their_own_beside_the_first) {
  EXPECT_EQ(path_of_view("logs/run.1/trace.json", 0), "logs/run.1/trace.json");
  EXPECT_EQ(path_of_view("logs/run.1/trace.json", 1), "logs/run.1/trace.json");
  EXPECT_EQ(path_of_view("logs/run.1/trace.json", 12), "logs/run.1/trace.view12.json");
  EXPECT_EQ(path_of_view("logs/run.1/trace", 2), "logs/run.1/trace.view2");
  EXPECT_EQ(path_of_view(".trace", 2), ".trace.view2");
}

using nlohmann::json;
using testing::ElementsAre;
using timeline_fixture::begin;
using timeline_fixture::expect_balanced;
using timeline_fixture::record_call;

class TimelineTest : public timeline_fixture::TimelineTest {};

TEST_F(TimelineTest, draws_the_tensors_of_calls_and_closes_what_is_open) {
  const auto timeline = make_timeline();
  record_call(*timeline, "lost");
  EXPECT_FALSE(timeline->wants_details());
  ASSERT_TRUE(timeline->start(to_file(path())).is_ok());
  EXPECT_TRUE(timeline->wants_details());
  record_call(*timeline, "a\"\xff");
  timeline->record(instant_span(SpanKind::kCycle, {}));
  timeline->record(instant_span(SpanKind::kReady, "never complete"));
  timeline->stop();
  timeline->stop();
  EXPECT_FALSE(timeline->wants_details());
  const std::string text = read(path());
  EXPECT_EQ(text.substr(0, 3), "[\n{");
  EXPECT_EQ(text.substr(text.size() - 2), "}]");
  expect_balanced(json::parse(text));
  EXPECT_THAT(begins(path()),
              ElementsAre("a\"\ufffd: NEGOTIATE_ALLREDUCE", "a\"\ufffd: ALLREDUCE", "a\"\ufffd: QUEUE",
                          "a\"\ufffd: MEMCPY_IN_FUSION_BUFFER", "a\"\ufffd: NATIVE_ALLREDUCE",
                          "a\"\ufffd: MEMCPY_OUT_FUSION_BUFFER", "never complete: NEGOTIATE_ALLREDUCE"));
  EXPECT_THAT(text, testing::HasSubstr(R"("args": {"dtype": "float32", "shape": "[2, 3]"})"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("CYCLE_START")));
}

TEST_F(TimelineTest, cycles_are_marked_when_asked_for) {
  const auto timeline = make_timeline();
  TimelineOptions options = to_file(path());
  options.mark_cycles = true;
  ASSERT_TRUE(timeline->start(options).is_ok());
  timeline->record(instant_span(SpanKind::kCycle, {}));
  timeline->stop();
  EXPECT_EQ(json::parse(read(path())).back()["name"], "CYCLE_START");
}

TEST_F(TimelineTest, a_file_that_cannot_be_opened_is_named) {
  const auto timeline = make_timeline();
  const Status status = timeline->start(to_file(path("missing/t.json")));
  EXPECT_EQ(status.code, Code::kUnavailable);
  EXPECT_THAT(status.why, testing::HasSubstr(path("missing/t.json") + ": No such file or directory"));
  EXPECT_FALSE(timeline->wants_details());
  EXPECT_TRUE(timeline->start(to_file(path())).is_ok()) << "a failed start leaves nothing behind";
}

TEST_F(TimelineTest, another_path_begins_another_file_and_the_same_path_changes_nothing) {
  const auto timeline = make_timeline();
  ASSERT_TRUE(timeline->start(to_file(path("1"))).is_ok());
  record_call(*timeline, "a");
  ASSERT_TRUE(timeline->start(to_file(path("1"))).is_ok());
  ASSERT_TRUE(timeline->start(to_file(path("2"))).is_ok());
  record_call(*timeline, "b");
  timeline->stop();
  EXPECT_THAT(begins(path("1")), testing::Each(testing::StartsWith("a: ")));
  EXPECT_THAT(begins(path("2")), testing::Each(testing::StartsWith("b: ")));
  EXPECT_EQ(json::parse(read(path("2"))).back()["pid"], 1);
}

TEST_F(TimelineTest, a_file_that_goes_on_keeps_what_it_has_and_its_clock) {
  const auto timeline = make_timeline();
  for (const char* name : {"one", "two", "one"}) {
    ASSERT_TRUE(timeline->start(going_on(path())).is_ok());
    record_call(*timeline, name);
    timeline->stop();
    expect_balanced(json::parse(read(path())));
  }
  std::vector<int> pids;
  int64_t last = 0, starts = 0;
  for (const json& object : json::parse(read(path()))) {
    starts += static_cast<int64_t>(object.value("pid", -1) == 0 && object["name"] == "process_name");
    if (object["ph"] != "B" || object["name"] != "ALLREDUCE") continue;
    pids.push_back(object["pid"]);
    EXPECT_GE(object["ts"].get<int64_t>(), last);
    last = object["ts"];
  }
  EXPECT_THAT(pids, ElementsAre(1, 2, 1));
  EXPECT_EQ(starts, 1);
}

TEST_F(TimelineTest, a_file_begins_anew_where_it_is_another_or_not_asked_to_go_on) {
  const auto timeline = make_timeline();
  const auto write = [&](const TimelineOptions& options) {
    EXPECT_TRUE(timeline->start(options).is_ok());
    record_call(*timeline, "a");
    timeline->stop();
    return json::parse(read(path())).size();
  };
  const size_t size = write(to_file(path()));
  EXPECT_EQ(write(to_file(path())), size);
  std::filesystem::remove(path());
  std::filesystem::remove(record_path(path(), 0));
  EXPECT_EQ(write(going_on(path())), size);
  EXPECT_GT(write(going_on(path())), size);
  EXPECT_EQ(make_timeline()->start(going_on(path())).code, Code::kOk) << "another process";
  EXPECT_LT(json::parse(read(path())).size(), size);
}

TEST_F(TimelineTest, what_was_written_before_another_file_is_not_emptied) {
  const auto timeline = make_timeline();
  for (const char* name : {"1", "2", "2"}) {
    ASSERT_TRUE(timeline->start(going_on(path(name))).is_ok()) << name;
    record_call(*timeline, "a");
    timeline->stop();
  }
  const std::string before = read(path("1"));
  const Status status = timeline->start(going_on(path("1")));
  EXPECT_EQ(status.code, Code::kUnavailable);
  EXPECT_THAT(status.why, testing::HasSubstr("was written by this process before another one"));
  EXPECT_EQ(read(path("1")), before);
  std::filesystem::remove(path("1"));
  std::filesystem::remove(record_path(path("1"), 0));
  EXPECT_TRUE(timeline->start(going_on(path("1"))).is_ok()) << "it is gone, so nothing can be lost";
}

TEST_F(TimelineTest, while_the_job_runs_the_calls_of_all_ranks_appear_in_a_valid_file) {
  const auto timeline = make_timeline();
  begin(timeline->recorder(), 0);
  ASSERT_TRUE(timeline->start(to_file(path(), 2)).is_ok());
  const auto other = make_timeline();
  begin(other->recorder(), 1);
  ASSERT_TRUE(other->start({.path = path(), .rank = 1, .size = 2}).is_ok());
  record_call(*timeline, "a");
  record_call(*other, "a");
  const Deadline deadline = Deadline::after(60 * kSecond);
  const auto has_both = [&] { return begins(path(), 0).size() == 6 && begins(path(), 1).size() == 6; };
  while (!has_both() && !deadline.is_past()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(begins(path(), 0), begins(path(), 1));
  record_call(*other, "b");
  other->stop();
  timeline->stop();
  EXPECT_EQ(begins(path(), 1).size(), 12u) << "what was recorded before the stop is drawn";
  expect_balanced(json::parse(read(path())));
}

TEST_F(TimelineTest, ranks_of_other_hosts_whose_records_are_not_here_are_named_at_the_end) {
  const auto timeline = make_timeline();
  TimelineOptions options = to_file(path(), 4);
  options.elsewhere = {2, 3};
  ASSERT_TRUE(timeline->start(options).is_ok());
  Recorder far;
  begin(far, 2, 0, "b");
  ASSERT_TRUE(far.start_file(record_path(path(), 2), false).is_ok());
  far.record(TraceSpan{.kind = SpanKind::kClock, .begin = monotonic_now(), .end = 100});
  far.stop_file();
  testing::internal::CaptureStderr();
  timeline->stop();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("does not show rank 3, whose records lie on their own hosts"));
}

TEST_F(TimelineTest, a_stop_that_waits_draws_what_another_rank_writes_before_it_stops) {
  const auto timeline = make_timeline();
  begin(timeline->recorder(), 0);
  ASSERT_TRUE(timeline->start(to_file(path(), 2)).is_ok());
  const auto other = make_timeline();
  begin(other->recorder(), 1);
  ASSERT_TRUE(other->start({.path = path(), .rank = 1, .size = 2}).is_ok());
  record_call(*timeline, "last");
  std::thread stopped([&] { timeline->stop(60 * kSecond); });
  const Deadline deadline = Deadline::after(60 * kSecond);
  const auto is_drawn = [&] { return !timeline->wants_details() && !begins(path(), 0).empty(); };
  while (!is_drawn() && !deadline.is_past()) std::this_thread::yield();
  record_call(*other, "late");
  other->stop();
  testing::internal::CaptureStderr();
  stopped.join();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::IsEmpty());
  EXPECT_EQ(begins(path(), 1).size(), 6u);
}

TEST_F(TimelineTest, a_rank_that_does_not_stop_is_named_and_a_wait_for_it_can_be_ended) {
  const auto timeline = make_timeline();
  const auto other = make_timeline();
  begin(timeline->recorder(), 0);
  begin(other->recorder(), 1);
  ASSERT_TRUE(other->start({.path = path(), .rank = 1, .size = 2}).is_ok());
  for (const Nanos patience : {kMillisecond, 3'600 * kSecond}) {
    ASSERT_TRUE(timeline->start(to_file(path(), 2)).is_ok());
    testing::internal::CaptureStderr();
    std::thread stopped([&] { timeline->stop(patience); });
    if (patience > kSecond) timeline->stop_waiting();
    stopped.join();
    const std::string said = testing::internal::GetCapturedStderr();
    if (patience < kSecond) {
      EXPECT_THAT(said, testing::HasSubstr("may lack the last events of rank 1, which was still recording"));
    }
  }
}

TEST_F(TimelineTest, a_rank_that_stopped_before_and_a_file_of_another_job_are_not_waited_for) {
  const auto timeline = make_timeline();
  Recorder stopped, killed;
  begin(timeline->recorder(), 0);
  begin(stopped, 1);
  begin(killed, 2, 6);
  ASSERT_TRUE(stopped.start_file(record_path(path(), 1), false).is_ok());
  stopped.stop_file();
  ASSERT_TRUE(killed.start_file(record_path(path(), 2), false).is_ok());  // it never ends
  ASSERT_TRUE(timeline->start(to_file(path(), 4)).is_ok());
  testing::internal::CaptureStderr();
  timeline->stop(3'600 * kSecond);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::IsEmpty());
}

TEST_F(TimelineTest, a_pipe_is_refused_at_once_and_the_records_are_kept) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  const auto timeline = make_timeline();
  begin(timeline->recorder(), 0);
  for (const bool has_reader : {false, true}) {
    const UniqueFd reader(has_reader ? open(path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1);
    const Status status = timeline->start(to_file(path()));
    EXPECT_EQ(status.code, Code::kUnavailable);
    EXPECT_THAT(status.why, testing::HasSubstr("it is a pipe or another special file"));
    EXPECT_THAT(status.why, testing::HasSubstr("all ranks keep their records beside it"));
    EXPECT_TRUE(timeline->wants_details());
    record_call(*timeline, "kept");
    timeline->stop();
    EXPECT_THAT(read(record_path(path(), 0)), testing::HasSubstr("kept"));
  }
}

TEST_F(TimelineTest, a_trace_that_cannot_be_written_is_closed) {
  const auto timeline = make_timeline();
  std::filesystem::create_symlink("/dev/full", path());
  const Status status = timeline->start(to_file(path()));
  EXPECT_THAT(status.why, testing::HasSubstr("No space left on device"));
  record_call(*timeline, "kept");
  timeline->stop();
  EXPECT_THAT(read(record_path(path(), 0)), testing::HasSubstr("kept"));
}

TEST_F(TimelineTest, a_file_that_is_damaged_costs_its_rank_alone) {
  const auto timeline = make_timeline();
  begin(timeline->recorder(), 0);
  ASSERT_TRUE(timeline->start(to_file(path(), 2)).is_ok());
  Recorder other;
  begin(other, 1);
  ASSERT_TRUE(other.start_file(record_path(path(), 1), false).is_ok());
  record_call(other, "a");
  other.stop_file();
  std::ofstream(record_path(path(), 1), std::ios::app) << std::string(320, '\xEE');
  record_call(*timeline, "a");
  timeline->stop();
  EXPECT_EQ(begins(path(), 0).size(), 6u);
  EXPECT_EQ(begins(path(), 1).size(), 6u) << "what comes before";
  expect_balanced(json::parse(read(path())));
}

TEST_F(TimelineTest, many_threads_may_record_while_it_starts_and_stops) {
  const auto timeline = make_timeline();
  std::atomic<bool> is_done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      const std::string track = "track" + std::to_string(t);
      while (!is_done) {
        record_call(*timeline, track);
        std::this_thread::yield();
      }
    });
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(timeline->start(to_file(path(std::to_string(i)))).is_ok());
    timeline->record(instant_span(SpanKind::kReady, "main"));
    timeline->stop();
    expect_balanced(json::parse(read(path(std::to_string(i)))));
  }
  is_done = true;
  for (std::thread& thread : threads) thread.join();
}

// Viewers read an array without its closing bracket, which is all that a kill inside a write may cost.
bool is_readable(const std::string& text, bool& is_whole) {
  is_whole = json::accept(text);
  if (is_whole) return true;
  for (size_t end = text.rfind('}'); end != std::string::npos && end > 0; end = text.rfind('}', end - 1))
    if (json::accept(text.substr(0, end + 1) + "]")) return true;
  return false;
}

TEST_F(TimelineTest, a_job_killed_at_any_moment_leaves_a_readable_file) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %lu\n", seed);
  std::mt19937_64 random(seed);
  constexpr int kKills = 20;
  int whole = 0;
  for (int i = 0; i < kKills; ++i) {
    const std::string file = path("kill" + std::to_string(i));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      TraceFile out;
      ChromeFormat format(0, 0);
      if (!out.open(file).is_ok()) _exit(1);
      for (int64_t n = 0; n < 100'000'000; ++n) {
        const std::string track = "tensor" + std::to_string(n % 50);
        format.begin({0, track, n}, "ALLREDUCE");
        format.end({0, track, n + 1});
        if (n % 20 == 0 && !out.append(format.take()).is_ok()) _exit(1);
      }
      _exit(0);
    }
    // Killed once the file has reached a random size: a condition, not a time.
    const auto size = static_cast<uintmax_t>(random() % 200'000 + 2'000);
    const Deadline deadline = soon();
    std::error_code none;
    while (!deadline.is_past()) {
      const auto now = std::filesystem::file_size(file, none);
      if (!none && now >= size) break;
      std::this_thread::yield();
    }
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    bool is_whole = false;
    EXPECT_TRUE(is_readable(read(file), is_whole)) << file;
    whole += is_whole ? 1 : 0;
  }
  EXPECT_GE(whole, kKills * 3 / 4);
}

}  // namespace
}  // namespace rueda::trace::timeline_test
