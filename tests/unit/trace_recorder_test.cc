#include "rueda/trace/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../soon.h"

namespace rueda::trace::recorder_test {
namespace {

class RecorderTest : public testing::Test {
 protected:
  RecorderTest() {
    std::string pattern = testing::TempDir() + "rueda_recorder_XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~RecorderTest() override { std::filesystem::remove_all(dir_); }
  [[nodiscard]] std::string path(const std::string& name = "t.rec") const { return dir_ + "/" + name; }

  static std::vector<RecordSlot> read(const std::string& file) {
    std::vector<RecordSlot> slots(std::filesystem::file_size(file) / sizeof(RecordSlot));
    std::ifstream(file, std::ios::binary)
        .read(reinterpret_cast<char*>(slots.data()),
              static_cast<std::streamsize>(slots.size() * sizeof(RecordSlot)));
    return slots;
  }
  static int64_t count(const std::vector<RecordSlot>& slots, RecordSlotKind kind) {
    return std::ranges::count_if(slots, [&](const RecordSlot& slot) { return slot.kind == kind; });
  }
  static void begin(Recorder& recorder, Epoch epoch = 1) {
    recorder.begin_epoch({.epoch = epoch, .rank = 3, .size = 4, .host = "a", .host_key = "a|1"});
  }
  static CallTrace call(uint64_t order, Nanos ended, std::string_view name = "grad") {
    return {.order = order, .name = name, .backend = "local", .tensors = 1, .ended = ended};
  }

  std::string dir_;
};

TEST_F(RecorderTest, records_nothing_unless_it_keeps_something_or_has_a_file) {
  Recorder recorder;
  begin(recorder);
  recorder.record(call(1, 1));
  EXPECT_FALSE(recorder.is_on());
  EXPECT_EQ(recorder.ring_bytes(), 0u);
  ASSERT_TRUE(recorder.start_file(path(), false).is_ok());
  EXPECT_TRUE(recorder.is_on());
  recorder.record(call(2, 2));
  recorder.stop_file();
  EXPECT_FALSE(recorder.is_on());
  recorder.record(call(3, 3));
  const std::vector<RecordSlot> slots = read(path());
  ASSERT_EQ(count(slots, RecordSlotKind::kCall), 1);
  EXPECT_EQ(slots.front().a, kFileMagic);
  const auto at = std::ranges::find(slots, RecordSlotKind::kCall, &RecordSlot::kind);
  EXPECT_EQ(unpack_call(&*at).order, 2u);
}

TEST_F(RecorderTest, the_ring_is_bounded_in_memory_and_in_time) {
  Recorder recorder;
  recorder.keep(4 * kSegmentBytes);
  begin(recorder);
  for (int i = 1; i < 100'000; ++i)
    recorder.record(call(static_cast<uint64_t>(i), i, "t" + std::to_string(i % 999)));
  EXPECT_LE(recorder.ring_bytes(), 4 * kSegmentBytes);
  ASSERT_TRUE(recorder.write_ring(path()).is_ok());
  const std::vector<RecordSlot> slots = read(path());
  EXPECT_LE(slots.size() * sizeof(RecordSlot), 4 * kSegmentBytes + sizeof(RecordSlot));
  const auto last = std::find_if(slots.rbegin(), slots.rend(),
                                 [](const RecordSlot& s) { return s.kind == RecordSlotKind::kCall; });
  EXPECT_EQ(last->a, 99'999) << "the latest is kept";
  // Later than a minute, nothing of that is left but the segment that was open.
  const Nanos later = kKeptTime + kSecond;
  for (int i = 0; i < 3'000; ++i) recorder.record(call(1'000'000, later));
  ASSERT_TRUE(recorder.write_ring(path()).is_ok());
  for (const RecordSlot& slot : read(path()))
    if (slot.kind == RecordSlotKind::kCall) {
      EXPECT_EQ(slot.a, 1'000'000);
    }
}

TEST_F(RecorderTest, every_segment_says_by_itself_who_recorded_it_and_what_its_names_are) {
  Recorder recorder;
  recorder.keep(1u << 20);
  begin(recorder);
  const std::string long_name(300, 'x');
  for (int i = 1; i < 5'000; ++i) recorder.record(call(1, i, long_name));
  ASSERT_TRUE(recorder.write_ring(path()).is_ok());
  const std::vector<RecordSlot> slots = read(path());
  const int64_t segments = count(slots, RecordSlotKind::kSegment);
  EXPECT_GT(segments, 3);
  EXPECT_EQ(count(slots, RecordSlotKind::kEpoch), segments);
  EXPECT_EQ(count(slots, RecordSlotKind::kName), 4 * segments) << "host, its key, the backend and the tensor";
}

TEST_F(RecorderTest, a_second_epoch_goes_on_in_the_same_file) {
  Recorder recorder;
  for (Epoch epoch = 1; epoch <= 2; ++epoch) {
    begin(recorder, epoch);
    ASSERT_TRUE(recorder.start_file(path(), true).is_ok());
    recorder.record(call(1, 1));
    recorder.stop_file();
  }
  std::vector<RecordSlot> slots = read(path());
  EXPECT_EQ(count(slots, RecordSlotKind::kCall), 2);
  EXPECT_EQ(count(slots, RecordSlotKind::kFile), 1);
  Recorder other;  // another process: the file belonged to an earlier job
  begin(other);
  ASSERT_TRUE(other.start_file(path(), true).is_ok());
  other.stop_file();
  EXPECT_EQ(count(read(path()), RecordSlotKind::kCall), 0);
}

TEST_F(RecorderTest, a_process_killed_at_any_moment_leaves_whole_records) {
  int readable = 0;
  for (int kill_at : {1, 40, 300}) {
    const std::string file = path("kill" + std::to_string(kill_at));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Recorder recorder;
      begin(recorder);
      if (!recorder.start_file(file, false).is_ok()) _exit(1);
      for (uint64_t i = 1;; ++i) recorder.record(call(i, monotonic_now()));
    }
    const Deadline deadline = soon();
    std::error_code none;
    const auto size = static_cast<uintmax_t>(kill_at) * 10'000;
    while (!deadline.is_past() &&
           !(std::filesystem::exists(file, none) && std::filesystem::file_size(file, none) > size))
      std::this_thread::yield();
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    const std::vector<RecordSlot> slots = read(file);
    for (size_t i = 0; i < slots.size(); ++i)
      if (slots[i].kind == RecordSlotKind::kCall && i + 2 < slots.size()) {
        EXPECT_EQ(slots[i + 2].kind, RecordSlotKind::kCallMore);
        ++readable;
      }
  }
  EXPECT_GT(readable, 300);
}

TEST_F(RecorderTest, a_file_that_another_process_writes_is_refused_with_a_sentence) {
  Recorder recorder;
  begin(recorder);
  ASSERT_TRUE(recorder.start_file(path(), false).is_ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    RecordFile other;
    const Status status = other.open(path(), false);
    const std::string expected = "process " + std::to_string(getppid()) + " is writing it. Give each job";
    _exit(status.code == Code::kUnavailable && status.why.find(expected) != std::string::npos ? 7 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  recorder.record(call(1, 1));
  recorder.stop_file();
  EXPECT_EQ(count(read(path()), RecordSlotKind::kCall), 1) << "the first job keeps its file";
}

TEST_F(RecorderTest, a_path_that_cannot_be_written_is_named) {
  Recorder recorder;
  const Status status = recorder.start_file(path("missing/t.rec"), false);
  EXPECT_EQ(status.code, Code::kUnavailable);
  EXPECT_THAT(status.why, testing::HasSubstr(path("missing/t.rec") + ": No such file or directory"));
  EXPECT_FALSE(recorder.has_file());
}

TEST_F(RecorderTest, a_full_disk_is_counted_in_the_file_and_ends_nothing) {
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const auto limit = [&](rlim_t bytes) {
    const struct rlimit full { bytes, before.rlim_max };
    setrlimit(RLIMIT_FSIZE, &full);
  };
  limit(100'000);
  Recorder recorder;
  recorder.keep(1u << 20);
  begin(recorder);
  EXPECT_TRUE(recorder.start_file(path(), false).is_ok());
  const Deadline deadline = soon();
  int64_t made = 0;
  const auto record = [&] { recorder.record(call(static_cast<uint64_t>(++made), monotonic_now())); };
  while (recorder.dropped() == 0 && !deadline.is_past()) record();
  EXPECT_TRUE(recorder.is_on()) << "the flight record goes on";
  const auto size = std::filesystem::file_size(path());
  EXPECT_LE(size, 100'000u);
  EXPECT_EQ(size % sizeof(RecordSlot), 0u);
  const auto missing_now = [&] { return read(path()).front().c; };
  while (missing_now() == 0 && !deadline.is_past()) std::this_thread::yield();
  EXPECT_EQ(read(path()).front().extra, EFBIG);
  record();
  record();
  limit(before.rlim_cur);  // there is room again
  while (std::filesystem::file_size(path()) == size && !deadline.is_past()) {
    record();
    std::this_thread::yield();
  }
  recorder.stop_file();
  const std::vector<RecordSlot> slots = read(path());
  EXPECT_EQ(slots.front().c, 0) << "nothing is missing at the end any more";
  int64_t missing = 0;
  for (const RecordSlot& slot : slots) missing += slot.kind == RecordSlotKind::kGap ? slot.b : 0;
  EXPECT_EQ(missing, recorder.dropped());
  EXPECT_EQ(count(slots, RecordSlotKind::kCall) + missing, made) << "every call is there or counted";
  const auto gap = std::ranges::find(slots, RecordSlotKind::kGap, &RecordSlot::kind);
  ASSERT_NE(gap, slots.end());
  EXPECT_EQ(gap->extra, EFBIG);
  EXPECT_EQ((gap + 1)->kind, RecordSlotKind::kSegment) << "names that were lost are not needed";
}

TEST_F(RecorderTest, a_disk_that_stays_full_is_counted_at_the_end_also_of_an_epoch) {
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  Recorder recorder;
  begin(recorder);
  ASSERT_TRUE(recorder.start_file(path(), true).is_ok());
  const struct rlimit full { 50'000, before.rlim_max };
  setrlimit(RLIMIT_FSIZE, &full);
  constexpr int64_t kCalls = 5'000;
  for (int64_t i = 1; i <= kCalls; ++i) recorder.record(call(static_cast<uint64_t>(i), i));
  recorder.stop_file();
  setrlimit(RLIMIT_FSIZE, &before);
  std::vector<RecordSlot> slots = read(path());
  EXPECT_EQ(count(slots, RecordSlotKind::kCall) + slots.front().c, kCalls);
  EXPECT_EQ(slots.front().c, recorder.dropped());
  begin(recorder, 2);
  ASSERT_TRUE(recorder.start_file(path(), true).is_ok());
  recorder.record(call(1, 1));
  recorder.stop_file();
  slots = read(path());
  EXPECT_EQ(slots.front().c, 0);
  const auto gap = std::ranges::find(slots, RecordSlotKind::kGap, &RecordSlot::kind);
  ASSERT_NE(gap, slots.end());
  EXPECT_EQ(gap->b, kCalls - count(slots, RecordSlotKind::kCall) + 1);
}

TEST_F(RecorderTest, every_record_is_in_the_file_or_counted_as_lost) {
  Recorder recorder;
  begin(recorder);
  ASSERT_TRUE(recorder.start_file(path(), false).is_ok());
  constexpr int64_t kCalls = 400'000;  // 38 MB at once: more than may wait for the writer
  for (int64_t i = 1; i <= kCalls; ++i) recorder.record(call(static_cast<uint64_t>(i), i));
  EXPECT_LE(recorder.ring_bytes(), kFileRingBytes);
  recorder.stop_file();
  const std::vector<RecordSlot> slots = read(path());
  EXPECT_EQ(count(slots, RecordSlotKind::kCall) + recorder.dropped(), kCalls);
  int64_t missing = 0;
  for (const RecordSlot& slot : slots) missing += slot.kind == RecordSlotKind::kGap ? slot.b : 0;
  EXPECT_EQ(missing, recorder.dropped());
}

TEST_F(RecorderTest, many_threads_may_record_while_files_come_and_go) {
  Recorder recorder;
  recorder.keep(1u << 20);
  begin(recorder);
  std::atomic<bool> is_done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      const std::string track = "track" + std::to_string(t);
      for (uint64_t i = 1; !is_done; ++i) {
        recorder.record(call(i, monotonic_now(), track));
        recorder.record(TensorTrace{.name = track, .submitted = monotonic_now()});
        recorder.record(TraceSpan{.begin = 1, .end = monotonic_now()});
        if (i % 16 == 0) std::this_thread::yield();
      }
    });
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(recorder.start_file(path(std::to_string(i)), false).is_ok());
    recorder.record(call(4'711, monotonic_now(), "main"));
    begin(recorder, static_cast<Epoch>(i));
    ASSERT_TRUE(recorder.write_ring(path("ring")).is_ok());
    recorder.stop_file();
    EXPECT_GE(count(read(path(std::to_string(i))), RecordSlotKind::kCall), 1);
  }
  is_done = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace rueda::trace::recorder_test
