// The table of what the tuner has tried, as a script for Horovod's table reads it.
#include "rueda/runtime/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace rueda::runtime::tuning_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using News = control::Tuner::News;

constexpr const char* kHeader =
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score,seconds,buckets,tried,step_ms,gain_percent,kept";

const control::Tuner::Choice kFirst{.what = "buckets up to 1 MiB", .buckets = 8, .fused_bytes = 1 << 20};
const control::Tuner::Choice kLarger{.what = "buckets up to 2 MiB", .buckets = 4, .fused_bytes = 2 << 20};
const control::Tuner::Choice kComputed{.what = "computed", .buckets = 5, .fused_bytes = 3 << 19};

class Table : public testing::Test {
 protected:
  Table() : path_(testing::TempDir() + "/tried-" + std::to_string(getpid()) + ".csv") {}
  ~Table() override { std::filesystem::remove(path_); }

  [[nodiscard]] Config config() const {
    Config config;
    config.tune_log = path_;
    return config;
  }
  [[nodiscard]] std::vector<std::string> lines() const {
    std::ifstream file(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  std::string path_;
};

TEST_F(Table, begins_with_the_columns_of_horovod_and_says_nothing_before_a_trial) {
  TuningReport report(config());
  EXPECT_THAT(lines(), IsEmpty());
  report.write({}, kSecond);
  report.write({}, 2 * kSecond);
  EXPECT_THAT(lines(), ElementsAre(kHeader));
}

TEST_F(Table, last_row_holds_what_is_in_use_after_each_trial) {
  TuningReport report(config());
  report.write({}, kSecond);
  report.write({{.tried = kComputed,
                 .best = kFirst,
                 .gain = -0.25,
                 .is_better = false,
                 .period = 100 * kMillisecond,
                 .bytes = 8'000'000}},
               11 * kSecond);
  EXPECT_THAT(lines(), ElementsAre(kHeader, "0,0,0,1,0,1.5,64,10.0,5,\"computed\",100.000,-25.00,0",
                                   "0,0,0,1,0,1,80,10.0,8,\"best: buckets up to 1 MiB\",100.000,0.00,1"));
  report.write({{.tried = kLarger,
                 .best = kLarger,
                 .gain = 0.2,
                 .is_better = true,
                 .period = 100 * kMillisecond,
                 .bytes = 8'000'000}},
               21 * kSecond);
  EXPECT_THAT(lines(), ElementsAre(kHeader, "0,0,0,1,0,1.5,64,10.0,5,\"computed\",100.000,-25.00,0",
                                   "0,0,0,1,0,2,100,20.0,4,\"buckets up to 2 MiB\",100.000,20.00,1",
                                   "0,0,0,1,0,2,100,20.0,4,\"best: buckets up to 2 MiB\",80.000,0.00,1"));
}

// 0.00 would say that it was compared and found equal.
TEST_F(Table, gain_is_empty_where_a_trial_ended_before_a_pair) {
  TuningReport report(config());
  report.write(
      {{.tried = kLarger, .best = kFirst, .gain = {}, .period = 100 * kMillisecond, .bytes = 8'000'000}},
      kSecond);
  EXPECT_THAT(lines(), ElementsAre(kHeader, "0,0,0,1,0,2,80,0.0,4,\"buckets up to 2 MiB\",100.000,,0",
                                   "0,0,0,1,0,1,80,0.0,8,\"best: buckets up to 1 MiB\",100.000,0.00,1"));
}

TEST_F(Table, columns_of_what_is_not_tuned_tell_what_is_set) {
  Config set = config();
  set.hierarchical_allreduce = true;
  set.cycle_time_ms = 2.5;
  TuningReport report(set);
  report.write({{.tried = kLarger, .best = kFirst, .gain = 0, .period = kMillisecond, .bytes = 1000}},
               kSecond);
  EXPECT_THAT(lines(), ElementsAre(kHeader, "1,0,0,1,2.5,2,1,0.0,4,\"buckets up to 2 MiB\",1.000,0.00,0",
                                   "1,0,0,1,2.5,1,1,0.0,8,\"best: buckets up to 1 MiB\",1.000,0.00,1"));
}

TEST_F(Table, that_cannot_be_written_costs_the_job_nothing) {
  Config set = config();
  set.tune_log = path_ + "/no/such/folder";
  TuningReport report(set);
  report.write({{.tried = kLarger, .best = kFirst, .gain = {}, .period = kMillisecond, .bytes = 1000}},
               kSecond);
  EXPECT_THAT(lines(), IsEmpty());
}

}  // namespace
}  // namespace rueda::runtime::tuning_test
