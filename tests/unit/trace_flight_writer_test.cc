#include "rueda/trace/flight_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace rueda::trace::flight_writer_test {
namespace {

class FlightWriterTest : public testing::Test {
 protected:
  FlightWriterTest() {
    std::string pattern = testing::TempDir() + "rueda_flight_XXXXXX";
    dir_ = mkdtemp(pattern.data());
    recorder_.keep(4 * kSegmentBytes);
    recorder_.begin_epoch({.epoch = 1, .rank = 0, .size = 1, .host = "a", .host_key = "a|1"});
    recorder_.record(instant_span(SpanKind::kStall, "rank 1 is late"));
  }
  ~FlightWriterTest() override { std::filesystem::remove_all(dir_); }

  [[nodiscard]] std::string path(const std::string& name) const { return dir_ + "/" + name; }
  static bool has_records(const std::string& path) {
    return std::filesystem::exists(path) && std::filesystem::file_size(path) > 2 * sizeof(RecordSlot);
  }

  std::string dir_;
  Recorder recorder_;
  FlightWriter writer_{recorder_};
};

// stop() lets the thread finish what was asked for before.
TEST_F(FlightWriterTest, a_request_and_a_signal_are_answered_before_it_stops) {
  ASSERT_TRUE(writer_.start(path("request"), 0).is_ok());
  writer_.request();
  writer_.stop();
  EXPECT_TRUE(has_records(path("request")));
  ASSERT_TRUE(writer_.start(path("signal"), SIGUSR2).is_ok());
  ASSERT_EQ(std::raise(SIGUSR2), 0);
  writer_.stop();
  EXPECT_TRUE(has_records(path("signal")));
  ASSERT_EQ(std::raise(SIGUSR2), 0);  // it does not end a process that has stopped watching
  writer_.request();
  std::signal(SIGUSR2, SIG_DFL);
}

TEST_F(FlightWriterTest, a_signal_that_the_program_handles_is_left_to_it) {
  static volatile std::sig_atomic_t seen = 0;
  std::signal(SIGUSR1, [](int) { seen = 1; });
  const Status status = writer_.start(path("f"), SIGUSR1);
  EXPECT_THAT(status.why, testing::HasSubstr("The program handles signal " + std::to_string(SIGUSR1)));
  ASSERT_EQ(std::raise(SIGUSR1), 0);
  EXPECT_EQ(seen, 1);
  writer_.request();  // stalls are still answered
  writer_.stop();
  EXPECT_TRUE(has_records(path("f")));
  std::signal(SIGUSR1, SIG_DFL);
}

TEST_F(FlightWriterTest, a_path_that_cannot_be_written_ends_nothing) {
  ASSERT_TRUE(writer_.start(path("missing/f"), 0).is_ok());
  writer_.request();
  writer_.stop();
  ASSERT_TRUE(writer_.start(path("f"), 0).is_ok());
  writer_.request();
  writer_.stop();
  EXPECT_TRUE(has_records(path("f")));
}

TEST_F(FlightWriterTest, what_is_sent_is_what_would_be_written) {
  ASSERT_TRUE(recorder_.write_ring(path("f")).is_ok());
  std::ifstream file(path("f"), std::ios::binary);
  const std::string written(std::istreambuf_iterator<char>(file), {});
  EXPECT_GT(written.size(), 2 * sizeof(RecordSlot));
  EXPECT_EQ(recorder_.ring(), written);
  EXPECT_EQ(Recorder().ring(), "") << "nothing is kept";
}

TEST_F(FlightWriterTest, a_record_that_cannot_be_written_leaves_the_one_before) {
  ASSERT_TRUE(recorder_.write_ring(path("f")).is_ok());
  const auto size = std::filesystem::file_size(path("f"));
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit full { sizeof(RecordSlot), before.rlim_max };
  setrlimit(RLIMIT_FSIZE, &full);
  const Status status = recorder_.write_ring(path("f"));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old);
  EXPECT_THAT(status.why, testing::HasSubstr("File too large"));
  EXPECT_EQ(std::filesystem::file_size(path("f")), size);
  EXPECT_FALSE(std::filesystem::exists(path("f.part")));
}

TEST_F(FlightWriterTest, a_file_that_is_being_recorded_is_not_replaced) {
  ASSERT_TRUE(recorder_.start_file(path("f"), false).is_ok());
  EXPECT_THAT(recorder_.write_ring(path("f")).why,
              testing::HasSubstr("this rank records its timeline there"));
  EXPECT_FALSE(std::filesystem::exists(path("f.part")));
  recorder_.stop_file();
  EXPECT_TRUE(recorder_.write_ring(path("f")).is_ok());
}

}  // namespace
}  // namespace rueda::trace::flight_writer_test
