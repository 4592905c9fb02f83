// Record files that are damaged, foreign, of another job or in the way.
#include <gmock/gmock.h>

#include <fstream>

#include "timeline/trace_writer.h"
#include "timeline_planned_job.h"

namespace rueda::timeline::files_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class JobFiles : public SummaryTest {};

TEST_F(JobFiles, bad_files_are_refused_or_used_as_far_as_they_go) {
  const std::string base = write({});
  const std::string path = trace::record_path(base, 1);
  const auto whole = std::filesystem::file_size(path);
  for (const uintmax_t size : {whole - 1, whole - 33, whole / 2, whole / 2 - 17}) {
    std::filesystem::resize_file(path, size);
    const auto summary = summarize_files({base});
    ASSERT_TRUE(summary.is_ok()) << summary.status().why;
    EXPECT_GT(summary.value().steps, 3);
  }
  std::ofstream(dir_ + "/foreign.rec") << R"([{"ph": "B", "ts": 0}, {"ph": "E", "ts": 1}, {}, {}])";
  EXPECT_THAT(summarize_files({dir_ + "/foreign.rec"}).status().why,
              HasSubstr("is not a record file of rueda"));
  std::ofstream(dir_ + "/empty.rec").close();
  EXPECT_THAT(summarize_files({dir_ + "/empty.rec"}).status().why, HasSubstr("is empty: the disk was full"));
  EXPECT_THAT(summarize_files({dir_ + "/missing.json"}).status().why, HasSubstr("There are no record files"));
  EXPECT_THAT(summarize_files({dir_ + "/missing.rec"}).status().why, HasSubstr("No such file"));
  EXPECT_THAT(summarize_files({base}, 99).status().why, HasSubstr("nothing of epoch 99"));
}

TEST_F(JobFiles, a_file_that_ends_long_before_the_others_is_told) {
  JobPlan plan;
  plan.steps = 60;
  plan.step = [](Rank, int64_t) { return StepPlan{.compute = 100}; };
  const std::string base = write(plan), path = trace::record_path(base, 1);
  EXPECT_TRUE(summarize_files({base}).value().remarks.empty());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THAT(as_text(summarize_files({base}).value()),
              AllOf(testing::ContainsRegex("records of rank 1 end [23][.0-9]* s before those of others"),
                    HasSubstr("Only steps that all ranks have finished are divided.")));
  std::vector<std::string> remarks;
  const std::vector<std::string> paths = find_files({base}).value();
  ASSERT_TRUE(merge(dir_ + "/all.json", paths, remarks).is_ok());
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_THAT(remarks[0], testing::EndsWith("it ended earlier, or its file was cut off.")) << "of a summary";
}

TEST_F(JobFiles, verdicts_of_the_job_are_repeated) {
  const std::string base = write({});
  trace::Recorder recorder;
  recorder.begin_epoch({.epoch = 1,
                        .rank = 2,
                        .size = 3,
                        .job = 7,
                        .began = kSecond,
                        .began_micros = 0,
                        .host = "a",
                        .host_key = "a|1"});
  const std::string path = trace::record_path(base, 2);
  std::filesystem::remove(path);
  ASSERT_TRUE(recorder.start_file(path, false).is_ok());
  for (int64_t i = 0; i < 6; ++i)
    recorder.record(TraceSpan{.kind = SpanKind::kVerdict,
                              .begin = (6 + i) * kSecond,
                              .end = (6 + i) * kSecond,
                              .text = "Verdict: missing: rank " + std::to_string(i)});
  recorder.stop_file();
  const std::vector<std::string> remarks = summarize_files({path}).value().remarks;
  EXPECT_THAT(remarks, testing::Contains("Rank 2 told of 2 more faults before the following ones."));
  EXPECT_THAT(remarks, testing::Contains("While it ran, after 10 s: Verdict: missing: rank 5"));
}

TEST_F(JobFiles, files_that_are_no_use_are_left_out_with_a_remark) {
  const std::string base = write({});
  std::ofstream(trace::record_path(base, 3)).close();
  std::filesystem::create_directory(trace::record_path(base, 4));
  const auto summary = summarize_files({base});
  ASSERT_TRUE(summary.is_ok()) << summary.status().why;
  EXPECT_GT(summary.value().steps, 3);
  EXPECT_THAT(as_text(summary.value()), AllOf(HasSubstr("rank3.rec is empty: the disk was full"),
                                              HasSubstr("rank4.rec is not a file. It is left out.")));
}

TEST_F(JobFiles, files_of_an_older_job_are_left_out_with_a_remark) {
  JobPlan older, newer;
  older.job = 8;
  newer.began_micros = older.began_micros + 1'000'000;
  const std::string base = write(newer), old = write(older, "older.json");
  std::filesystem::rename(trace::record_path(old, 1), trace::record_path(base, 3));
  const auto summary = summarize_files({base});
  ASSERT_TRUE(summary.is_ok()) << summary.status().why;
  EXPECT_GT(summary.value().steps, 3);
  EXPECT_THAT(as_text(summary.value()), HasSubstr("rank3.rec is of another job than "));
}

TEST_F(JobFiles, two_files_of_one_rank_are_refused) {
  const std::string base = write({});
  std::filesystem::copy(trace::record_path(base, 1), trace::record_path(base, 3));
  EXPECT_THAT(summarize_files({base}).status().why, HasSubstr("are both of rank 1"));
}

TEST_F(JobFiles, a_merge_writes_over_no_record_and_leaves_a_file_that_it_cannot_replace) {
  const std::string base = write({});
  std::vector<std::string> remarks;
  const auto bytes = std::filesystem::file_size(trace::record_path(base, 0));
  EXPECT_THAT(merge(trace::record_path(base, 0), {trace::record_path(base, 1)}, remarks).why,
              HasSubstr("is the name of a record file"));
  EXPECT_EQ(std::filesystem::file_size(trace::record_path(base, 0)), bytes);
  std::ofstream(base) << "of rank 0";
  EXPECT_THAT(merge(base, {trace::record_path(base, 1)}, remarks).why,
              HasSubstr("is the timeline that the job has written"));
  EXPECT_EQ(std::filesystem::file_size(base), 9u);
  std::ofstream(dir_ + "/kept.json") << "kept";
  EXPECT_FALSE(merge(dir_ + "/kept.json", {dir_ + "/missing.rec"}, remarks).is_ok());
  EXPECT_EQ(std::filesystem::file_size(dir_ + "/kept.json"), 4u);
  EXPECT_TRUE(merge(dir_ + "/kept.json", {trace::record_path(base, 1)}, remarks).is_ok());
  EXPECT_GT(std::filesystem::file_size(dir_ + "/kept.json"), 1'000u);
  for (const auto& entry : std::filesystem::directory_iterator(dir_))
    EXPECT_EQ(entry.path().string().find(".part"), std::string::npos) << entry.path();
}

}  // namespace
}  // namespace rueda::timeline::files_test
