#include "rueda/trace/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "rueda/trace/chrome_format.h"
#include "rueda/trace/event_codec.h"
#include "rueda/trace/trace_file.h"

namespace rueda::trace::timeline_test {
namespace {

using nlohmann::json;

class TimelineTest : public testing::Test {
 protected:
  TimelineTest() {
    std::string pattern = testing::TempDir() + "rueda_trace_XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~TimelineTest() override { std::filesystem::remove_all(dir_); }

  [[nodiscard]] std::string path(const std::string& name = "t.json") const { return dir_ + "/" + name; }
  static std::string read(const std::string& file) {
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  static TimelineOptions to_file(const std::string& file, bool mark_cycles = false) {
    return {.path = file, .rank = 0, .mark_cycles = mark_cycles, .forward = {}};
  }

  std::string dir_;
};

TraceEvent event(TraceKind kind, std::string_view track, std::string_view name = {}) {
  return {.kind = kind,
          .when = monotonic_now(),
          .track = track,
          .name = name,
          .args_dtype = {},
          .args_shape = {},
          .value = 0};
}

void expect_balanced(const json& events) {
  std::map<std::pair<int, int>, int> depth;
  for (const json& object : events) {
    if (!object.contains("pid")) continue;
    int& open = depth[{object["pid"].get<int>(), object.value("tid", 0)}];
    if (object["ph"] == "B") ++open;
    if (object["ph"] == "E") --open;
    ASSERT_GE(open, 0);
  }
  for (const auto& [where, open] : depth) EXPECT_EQ(open, 0) << where.first << " " << where.second;
}

TEST_F(TimelineTest, writes_what_was_emitted_and_closes_what_is_open) {
  const auto timeline = make_timeline();
  EXPECT_FALSE(timeline->is_on());
  timeline->emit(event(TraceKind::kBegin, "lost", "X"));
  ASSERT_TRUE(timeline->start(to_file(path())).is_ok());
  EXPECT_TRUE(timeline->is_on());
  timeline->emit(event(TraceKind::kBegin, "a\"\xff", "ALLREDUCE"));
  timeline->emit(event(TraceKind::kCycle, ""));
  timeline->stop();
  timeline->stop();
  EXPECT_FALSE(timeline->is_on());
  const std::string text = read(path());
  EXPECT_EQ(text.substr(0, 3), "[\n{");
  EXPECT_EQ(text.substr(text.size() - 2), "}]");
  const json events = json::parse(text);
  EXPECT_EQ(events.size(), 6u) << "four metadata objects, a begin, an end, and no cycle";
  expect_balanced(events);
  EXPECT_EQ(timeline->dropped(), 0);
}

TEST_F(TimelineTest, cycles_are_marked_when_asked_for) {
  const auto timeline = make_timeline();
  ASSERT_TRUE(timeline->start(to_file(path(), true)).is_ok());
  timeline->emit(event(TraceKind::kCycle, ""));
  timeline->stop();
  EXPECT_EQ(json::parse(read(path())).back()["name"], "CYCLE_START");
}

TEST_F(TimelineTest, a_file_that_cannot_be_opened_is_named) {
  const auto timeline = make_timeline();
  const Status status = timeline->start(to_file(path("missing/t.json")));
  EXPECT_EQ(status.code, Code::kUnavailable);
  EXPECT_THAT(status.why, testing::HasSubstr(path("missing/t.json") + ": No such file or directory"));
  EXPECT_FALSE(timeline->is_on());
  EXPECT_TRUE(timeline->start(to_file(path())).is_ok()) << "a failed start leaves nothing behind";
}

TEST_F(TimelineTest, another_path_begins_another_file_and_the_same_path_changes_nothing) {
  const auto timeline = make_timeline();
  ASSERT_TRUE(timeline->start(to_file(path("1"))).is_ok());
  timeline->emit(event(TraceKind::kInstant, "a", "one"));
  ASSERT_TRUE(timeline->start(to_file(path("1"))).is_ok());
  ASSERT_TRUE(timeline->start(to_file(path("2"))).is_ok());
  timeline->emit(event(TraceKind::kInstant, "b", "two"));
  timeline->stop();
  EXPECT_EQ(json::parse(read(path("1"))).back()["name"], "one");
  const json second = json::parse(read(path("2")));
  EXPECT_EQ(second.back()["name"], "two");
  EXPECT_EQ(second.back()["pid"], 1);
}

TEST_F(TimelineTest, a_file_that_goes_on_keeps_what_it_has_and_its_clock) {
  const auto timeline = make_timeline();
  TimelineOptions options = to_file(path());
  options.goes_on = true;
  for (const char* name : {"one", "two", "three"}) {
    ASSERT_TRUE(timeline->start(options).is_ok());
    timeline->emit(event(TraceKind::kBegin, "a", name));
    timeline->stop();
    expect_balanced(json::parse(read(path())));
  }
  std::vector<std::string> names;
  int64_t last = 0, starts = 0;
  for (const json& object : json::parse(read(path()))) {
    starts += static_cast<int64_t>(object.value("pid", -1) == 0 && object["name"] == "process_name");
    if (object["ph"] != "B") continue;
    names.push_back(object["name"]);
    EXPECT_EQ(object["pid"], 1);
    EXPECT_GE(object["ts"].get<int64_t>(), last);
    last = object["ts"];
  }
  EXPECT_THAT(names, testing::ElementsAre("one", "two", "three"));
  EXPECT_EQ(starts, 1);
}

TEST_F(TimelineTest, a_file_begins_anew_where_it_is_another_or_not_asked_to_go_on) {
  const auto timeline = make_timeline();
  TimelineOptions options = to_file(path());
  const auto write = [&](const char* name) {
    EXPECT_TRUE(timeline->start(options).is_ok());
    timeline->emit(event(TraceKind::kInstant, "a", name));
    timeline->stop();
    return json::parse(read(path())).size();
  };
  const size_t size = write("one");
  EXPECT_EQ(write("two"), size);
  options.goes_on = true;
  std::filesystem::remove(path());
  EXPECT_EQ(write("three"), size);
  std::ofstream(path()) << "[]";
  EXPECT_EQ(write("four"), size);
  EXPECT_GT(write("five"), size);
  EXPECT_EQ(make_timeline()->start(options).code, Code::kOk) << "another process";
  EXPECT_LT(json::parse(read(path())).size(), size);
}

TEST_F(TimelineTest, what_was_written_before_another_file_is_not_emptied) {
  const auto timeline = make_timeline();
  for (const char* name : {"1", "2", "2"}) {
    TimelineOptions options = to_file(path(name));
    options.goes_on = true;
    ASSERT_TRUE(timeline->start(options).is_ok()) << name;
    timeline->emit(event(TraceKind::kInstant, "a", "one"));
    timeline->stop();
  }
  const std::string before = read(path("1"));
  TimelineOptions options = to_file(path("1"));
  options.goes_on = true;
  const Status status = timeline->start(options);
  EXPECT_EQ(status.code, Code::kUnavailable);
  EXPECT_THAT(status.why, testing::HasSubstr("was written by this process before another one"));
  EXPECT_EQ(read(path("1")), before);
  std::filesystem::remove(path("1"));
  std::filesystem::remove(record_path(path("1"), 0));
  EXPECT_TRUE(timeline->start(options).is_ok()) << "it is gone, so nothing can be lost";
}

TEST_F(TimelineTest, other_ranks_forward_bounded_batches_that_rank_0_ingests) {
  const auto sender = make_timeline();
  std::mutex mutex;
  std::vector<Bytes> batches;
  ASSERT_TRUE(sender
                  ->start({.path = {},
                           .rank = 3,
                           .mark_cycles = true,
                           .forward =
                               [&](Bytes batch) {
                                 const std::lock_guard lock(mutex);
                                 batches.push_back(std::move(batch));
                               }})
                  .is_ok());
  const std::string long_name(300, 'x');
  for (int i = 0; i < 5000; ++i) {
    sender->emit(event(TraceKind::kBegin, long_name, "ALLREDUCE"));
    sender->emit(event(TraceKind::kEnd, long_name));
  }
  sender->stop();
  const auto timeline = make_timeline();
  ASSERT_TRUE(timeline->start(to_file(path())).is_ok());
  for (const Bytes& batch : batches) {
    EXPECT_LE(batch.size(), 1u << 20);
    EXPECT_TRUE(timeline->ingest(3, 0, batch).is_ok());
  }
  timeline->stop();
  const json events = json::parse(read(path()));
  expect_balanced(events);
  EXPECT_EQ(events.back()["tid"], 3);
  EXPECT_EQ(timeline->dropped(), sender->dropped());
}

TEST_F(TimelineTest, malformed_batches_are_refused_and_leave_no_trace) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %lu\n", seed);
  std::mt19937_64 random(seed);
  const auto timeline = make_timeline();
  ASSERT_TRUE(timeline->start(to_file(path())).is_ok());
  Bytes good;
  append_event(good, event(TraceKind::kBegin, "track", "NAME"));
  const size_t first = good.size();
  append_event(good, event(TraceKind::kEnd, "track"));
  for (size_t size = 1; size < good.size(); ++size) {
    // Exactly one event is a batch as well.
    EXPECT_EQ(timeline->ingest(1, 0, std::span(good).first(size)).is_ok(), size == first) << size;
  }
  EXPECT_FALSE(timeline->ingest(0, 0, good).is_ok());
  EXPECT_FALSE(timeline->ingest(1, 0, Bytes((1u << 20) + 1)).is_ok());
  for (int i = 0; i < 5000; ++i) {
    Bytes bad = good;
    bad[random() % bad.size()] = static_cast<std::byte>(random());
    (void)timeline->ingest(1, 0, bad);
  }
  timeline->stop();
  expect_balanced(json::parse(read(path())));
}

TEST_F(TimelineTest, a_full_buffer_drops_and_counts_and_the_file_stays_balanced) {
  const auto timeline = make_timeline();
  ASSERT_TRUE(timeline->start(to_file(path())).is_ok());
  const std::string name(4000, 'x');
  constexpr int kPairs = 4000;
  for (int i = 0; i < kPairs; ++i) {  // 16 MB at once: far more than the buffer, faster than it is written
    timeline->emit(event(TraceKind::kBegin, "t", name));
    timeline->emit(event(TraceKind::kEnd, "t"));
  }
  timeline->stop();
  const json events = json::parse(read(path()));
  expect_balanced(events);
  int64_t dropped = 0;
  int64_t begins = 0;
  for (const json& object : events) {
    if (object["ph"] == "B") ++begins;
    if (object.value("name", "") == "DROPPED_EVENTS") dropped += object["args"]["count"].get<int64_t>();
  }
  EXPECT_EQ(dropped, timeline->dropped());
  EXPECT_GE(begins + dropped, kPairs) << "every begin is in the file or counted";
  EXPECT_GT(begins, 0);
}

TEST_F(TimelineTest, many_threads_may_emit_while_it_starts_and_stops) {
  const auto timeline = make_timeline();
  std::atomic<bool> is_done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      const std::string track = "track" + std::to_string(t);
      while (!is_done) {
        timeline->emit(event(TraceKind::kBegin, track, "A"));
        timeline->emit(event(TraceKind::kEnd, track));
        std::this_thread::yield();
      }
    });
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(timeline->start(to_file(path(std::to_string(i)))).is_ok());
    timeline->emit(event(TraceKind::kInstant, "main", "here"));
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
        format.add(0, event(TraceKind::kBegin, track, "ALLREDUCE"), 0);
        format.add(0, event(TraceKind::kEnd, track), 0);
        if (n % 20 == 0 && !out.append(format.take()).is_ok()) _exit(1);
      }
      _exit(0);
    }
    // Killed once the file has reached a random size: a condition, not a time.
    const auto size = static_cast<uintmax_t>(random() % 200'000 + 2'000);
    const Deadline deadline = Deadline::after(20 * kSecond);
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
