// Jobs that never ran, written with the recorder, with a known cause for each lost moment.
#include "timeline/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <utility>

#include "../sanitizers.h"
#include "rueda/trace/recorder.h"
#include "timeline/trace_writer.h"
#include "timeline_planned_job.h"

namespace rueda::timeline::summary_test {
namespace {

using testing::HasSubstr;

TEST_F(SummaryTest, time_is_divided_as_it_was_spent) {
  const auto summary = summarize_files({write({})});
  ASSERT_TRUE(summary.is_ok()) << summary.status().why;
  const Summary& s = summary.value();
  EXPECT_EQ(s.steps, 20);
  EXPECT_NEAR(s.step_length / 1e6, 15, 0.01);
  EXPECT_NEAR(share(s.shares, StepShare::kCompute), 10, 0.01);
  EXPECT_NEAR(share(s.shares, StepShare::kTransfer), 5, 0.01);
  EXPECT_LT(s.unattributed, 0.02);
  EXPECT_EQ(s.calls, 40);
  EXPECT_EQ(s.planned_calls, 40);
  EXPECT_NEAR(s.bus_gbps, 4.0 / 3 * (1 << 20) / 2.5e6, 0.01);
  ASSERT_FALSE(s.advice.empty());
  EXPECT_NEAR(s.advice.front().gain, 5.0 / 15, 0.01);
}

TEST(Advice, a_single_rank_is_not_told_to_learn_a_plan) {
  Summary summary;
  summary.steps = 10;
  summary.step_length = 1e7;
  summary.calls = 20;
  summary.shares[static_cast<size_t>(StepShare::kNegotiation)] = 5e6;
  EXPECT_THAT(as_text(summary), testing::Not(HasSubstr("learned plan")));
  const auto names_a_plan = testing::Field(&Advice::text, HasSubstr("learned plan"));
  EXPECT_THAT(advise(summary), testing::Each(testing::Not(names_a_plan)));
  summary.size = 2;
  EXPECT_THAT(as_text(summary), HasSubstr("0 % by a learned plan"));
  EXPECT_THAT(advise(summary), testing::Contains(names_a_plan));
}

TEST_F(SummaryTest, a_rank_that_computes_longer_is_named_with_its_cause) {
  JobPlan plan;
  plan.step = [](Rank rank, int64_t) { return StepPlan{.compute = rank == 1 ? 18.0 : 10.0}; };
  const auto summary = summarize_files({write(plan)});
  ASSERT_TRUE(summary.is_ok());
  const RankSummary& late = summary.value().by_rank[1];
  EXPECT_EQ(late.why, Lateness::kCompute);
  EXPECT_NEAR(late.cost / 1e6, 8, 0.01);
  EXPECT_EQ(late.last, 20) << "the first call of each step";
  EXPECT_EQ(summary.value().by_rank[0].cost, 0);
  EXPECT_EQ(late.critical, 20) << "of all steps";
  EXPECT_NEAR(share(summary.value().critical, StepShare::kCompute), 18, 0.01);
  EXPECT_NEAR(share(summary.value().critical, StepShare::kTransfer), 5, 0.01);
  EXPECT_EQ(share(summary.value().critical, StepShare::kWaiting), 0);
  EXPECT_THAT(as_text(summary.value()),
              HasSubstr("waits least: rank 1 in 100 % of the steps\n  compute 18 ms"));
  EXPECT_THAT(summary.value().advice.front().text, HasSubstr("for rank 1 (host a): it computes 8 ms longer"));
}

// A compiled step of TensorFlow says nothing of its waits, and the metrics of an epoch are waited for.
TEST_F(SummaryTest, a_late_rank_is_seen_although_the_program_says_when_it_waits_in_few_steps_alone) {
  JobPlan plan;
  plan.steps = 100;
  plan.waits = [](int64_t step) { return step % 10 == 9; };
  plan.step = [](Rank rank, int64_t) { return StepPlan{.compute = rank == 1 ? 18.0 : 10.0}; };
  const Summary some = summarize_files({write(plan)}).value();
  EXPECT_FALSE(some.knows_waits);
  EXPECT_THAT(some.advice.front().text, HasSubstr("for rank 1 (host a): it computes 8 ms longer"));
  EXPECT_NEAR(share(some.by_rank[0].shares, StepShare::kWaiting), 8, 0.01);
  // Steps of an optimizer that reduces every fifth time say nothing of the program.
  plan.waits = plan.reduces = [](int64_t step) { return step % 5 == 4; };
  const Summary passes = summarize_files({write(plan, "passes.json")}).value();
  EXPECT_TRUE(passes.knows_waits);
}

TEST_F(SummaryTest, a_rank_that_waits_for_input_is_named_with_its_cause) {
  JobPlan plan;
  plan.step = [](Rank rank, int64_t) { return StepPlan{.input = rank == 2 ? 9.0 : 1.0}; };
  const auto summary = summarize_files({write(plan)});
  ASSERT_TRUE(summary.is_ok());
  EXPECT_EQ(summary.value().by_rank[2].why, Lateness::kInput);
  EXPECT_NEAR(share(summary.value().by_rank[2].shares, StepShare::kInput), 9, 0.01);
  EXPECT_THAT(as_text(summary.value()), HasSubstr("it waits 8 ms longer for its input than the median rank"));
}

TEST_F(SummaryTest, clocks_that_are_an_hour_apart_change_nothing_but_the_bound) {
  JobPlan plan;
  plan.offset = 3'600 * kSecond;
  plan.step = [](Rank rank, int64_t) { return StepPlan{.compute = rank == 1 ? 18.0 : 10.0}; };
  const auto summary = summarize_files({write(plan)});
  ASSERT_TRUE(summary.is_ok());
  EXPECT_EQ(summary.value().steps, 20);
  EXPECT_NEAR(summary.value().by_rank[1].cost / 1e6, 8, 0.1);
  EXPECT_GT(summary.value().clock_bound, 3'000);
  // A rank that is later by less than the bound is not called late.
  plan.step = [](Rank rank, int64_t) { return StepPlan{.compute = rank == 1 ? 10.001 : 10.0}; };
  const auto equal = summarize_files({write(plan, "u.json")});
  ASSERT_TRUE(equal.is_ok());
  EXPECT_EQ(equal.value().by_rank[1].cost, 0);
}

TEST_F(SummaryTest, a_job_without_marks_is_divided_by_time) {
  const std::string base = write({});
  // Takes the marks out: they become spans of no length that nobody counts.
  for (Rank rank = 0; rank < 3; ++rank) {
    std::fstream file(trace::record_path(base, rank), std::ios::in | std::ios::out | std::ios::binary);
    trace::RecordSlot slot;
    for (std::streamoff at = 0; file.seekg(at).read(reinterpret_cast<char*>(&slot), sizeof(slot));
         at += sizeof(slot)) {
      if (slot.kind != trace::RecordSlotKind::kSpan || slot.detail != static_cast<uint8_t>(SpanKind::kStep))
        continue;
      slot.detail = static_cast<uint8_t>(SpanKind::kWait);
      file.seekp(at).write(reinterpret_cast<const char*>(&slot), sizeof(slot));
    }
  }
  const auto summary = summarize_files({base});
  ASSERT_TRUE(summary.is_ok());
  EXPECT_FALSE(summary.value().has_steps);
  EXPECT_GE(summary.value().steps, 1);
  EXPECT_THAT(as_text(summary.value()), HasSubstr("the program marks no steps"));
}

// Its end is the end of the job, so it belongs to no window before another one.
TEST_F(SummaryTest, the_last_call_of_a_job_without_marks_counts) {
  const auto write_calls = [&](const std::string& name, int calls, Rank of_ranks) {
    std::vector<std::string> paths;
    for (Rank rank = 0; rank < 2; ++rank) {
      trace::Recorder recorder;
      recorder.begin_epoch(
          {.epoch = 1, .rank = rank, .size = 2, .job = 7, .began = kSecond, .host = "a", .host_key = "a|1"});
      paths.push_back(trace::record_path(dir_ + "/" + name, rank));
      EXPECT_TRUE(recorder.start_file(paths.back(), false).is_ok());
      for (int call = 0; rank < of_ranks && call < calls; ++call) {
        const Nanos began = kSecond + ms(1'000.0 * call), ended = began + ms(4 + rank);
        recorder.record(CallTrace{.order = static_cast<uint64_t>(call),
                                  .name = "x",
                                  .backend = "local",
                                  .tensors = 1,
                                  .bytes = 8,
                                  .submitted = began,
                                  .ordered = began,
                                  .started = began,
                                  .transfer_began = began,
                                  .ended = ended});
      }
    }
    return paths;
  };
  const Summary one = summarize_files(write_calls("one", 1, 2)).value();
  EXPECT_EQ(one.calls, 1);
  EXPECT_THAT(as_text(one), HasSubstr("Transfers: 1 in 8 B for each rank"));
  EXPECT_EQ(summarize_files(write_calls("three", 3, 2)).value().calls, 3);
  const Summary half = summarize_files(write_calls("half", 1, 1)).value();  // of a process set
  EXPECT_THAT(as_text(half), HasSubstr("Transfers: 0.5 in 4 B for each rank"));
  EXPECT_EQ(half.by_transfer.at(0).calls, 1);
}

// Two messages of one call from rank 0 to rank 1, whose receives were posted long before. Of a third one only
// the receive is known.
TEST_F(SummaryTest, messages_are_drawn_from_when_they_were_sent_with_an_arrow_for_each) {
  std::vector<std::string> paths;
  for (Rank rank = 0; rank < 2; ++rank) {
    trace::Recorder recorder;
    recorder.begin_epoch(
        {.epoch = 1, .rank = rank, .size = 2, .job = 7, .began = kSecond, .host = "a", .host_key = "a|1"});
    paths.push_back(trace::record_path(dir_ + "/m.json", rank));
    ASSERT_TRUE(recorder.start_file(paths.back(), false).is_ok());
    for (uint32_t number = 0; number < (rank == 0 ? 2u : 3u); ++number) {
      const Nanos sent = kSecond + ms(10 * number + 5);
      recorder.record(TraceSpan{.kind = rank == 0 ? SpanKind::kSent : SpanKind::kReceived,
                                .begin = rank == 0 ? sent : kSecond,
                                .end = sent + ms(rank == 0 ? 1 : 2),
                                .value = 1'000'000,
                                .peer = 1 - rank,
                                .call = call_tag(3, 12),
                                .number = number});
    }
    recorder.record(CallTrace{.order = 12,
                              .name = "g",
                              .backend = "native",
                              .algorithm = "ring",
                              .bytes = 8,
                              .submitted = kSecond,
                              .ordered = kSecond,
                              .started = kSecond,
                              .ended = kSecond + ms(40)});
  }
  std::vector<std::string> remarks;
  ASSERT_TRUE(merge(dir_ + "/m.json", paths, remarks).is_ok());
  std::ifstream file(dir_ + "/m.json");
  const auto events = nlohmann::json::parse(file);
  std::map<int, std::string> tracks;
  for (const auto& event : events)
    if (event.value("name", "") == "process_name") tracks[event["pid"]] = event["args"].value("name", "");
  std::map<std::string, std::vector<double>> begins;
  std::map<std::string, nlohmann::json> args;
  std::map<std::string, std::set<std::string>> arrows;
  for (const auto& event : events) {
    const std::string kind = event.value("ph", "");
    if (kind == "B") begins[tracks[event["pid"]]].push_back(event["ts"]);
    if (kind == "B" && event.contains("args")) args[tracks[event["pid"]]] = event["args"];
    if (kind == "s" || kind == "f") arrows[kind].insert(event["id"].get<std::string>());
  }
  EXPECT_EQ(begins["sent to rank 1"], (std::vector<double>{5'000, 15'000}));
  EXPECT_EQ(begins["received from rank 0"], (std::vector<double>{5'000, 15'000}));
  EXPECT_EQ(begins["received from rank 0 (2 at once)"], (std::vector<double>{0}))
      << "from when it was posted";
  EXPECT_EQ(args["sent to rank 1"]["bytes"], 1'000'000);
  EXPECT_EQ(args["sent to rank 1"]["bytes per second"], 1'000'000'000) << "in a millisecond";
  EXPECT_EQ(args["received from rank 0"]["bytes per second"], 500'000'000);
  EXPECT_EQ(args["transfers"]["algorithm"], "ring");
  EXPECT_EQ(arrows["s"].size(), 2u);
  EXPECT_EQ(arrows["f"], arrows["s"]);
}

// Without marks, a damaged time of a call would make a window of each second until then.
TEST_F(SummaryTest, a_time_that_cannot_be_ends_the_file_and_a_late_one_ends_the_windows) {
  JobPlan plan;
  plan.ranks = 1;
  for (const Nanos late : {Nanos{1} << 62, Nanos{1} << 57}) {
    const std::string base = write(plan);
    std::fstream file(trace::record_path(base, 0), std::ios::in | std::ios::out | std::ios::binary);
    trace::RecordSlot slot;
    bool is_first = true;
    for (std::streamoff at = 0; file.seekg(at).read(reinterpret_cast<char*>(&slot), sizeof(slot));
         at += sizeof(slot)) {
      const bool is_end = slot.kind == trace::RecordSlotKind::kCallMore && slot.detail == 2;
      if (is_end && !std::exchange(is_first, false)) slot.c = late;
      if (slot.kind == trace::RecordSlotKind::kSpan) slot.detail = static_cast<uint8_t>(SpanKind::kWait);
      file.seekp(at).write(reinterpret_cast<const char*>(&slot), sizeof(slot));
    }
    file.close();
    const auto summary = summarize_files({base});
    ASSERT_TRUE(summary.is_ok()) << summary.status().why;
    const bool is_refused = late > Nanos{1} << 58;
    EXPECT_EQ(as_text(summary.value()).find("a number of a call is out of range") != std::string::npos,
              is_refused);
    EXPECT_LE(summary.value().steps, (1 << 16) + 1);
  }
}

TEST_F(SummaryTest, damaged_bytes_never_harm_the_reader) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %lu\n", seed);
  std::mt19937_64 random(seed);
  const std::string base = write({.steps = 6});
  const std::string path = trace::record_path(base, 1);
  std::stringstream good;
  good << std::ifstream(path, std::ios::binary).rdbuf();
  for (int round = 0; round < 200; ++round) {
    std::string bad = good.str();
    for (int i = 0; i < 4; ++i) bad[random() % bad.size()] = static_cast<char>(random());
    std::ofstream(path, std::ios::binary) << bad;
    const auto summary = summarize_files({base});
    if (summary.is_ok()) {
      EXPECT_FALSE(as_text(summary.value()).empty());
    }
    std::vector<std::string> remarks;
    (void)merge(dir_ + "/out.pftrace", {path}, remarks);
  }
}

TEST_F(SummaryTest, the_json_and_the_page_hold_what_the_text_says) {
  JobPlan plan;
  plan.steps = 3'000;
  plan.ranks = 2;
  const auto summary = summarize_files({write(plan)});
  ASSERT_TRUE(summary.is_ok());
  const auto json = nlohmann::json::parse(as_json(summary.value()));
  EXPECT_EQ(json["steps"], 3'000);
  EXPECT_LE(json["by_step"].size(), 2'048u);
  int64_t steps = 0;
  for (const auto& row : json["by_step"]) steps += row["count"].get<int64_t>();
  EXPECT_EQ(steps, 3'000);
  const std::string page = as_html(summary.value());
  for (const char* foreign : {"http:", "https:", "src=", "@import", "url("})
    EXPECT_EQ(page.find(foreign), page.npos);
  for (const char* needed :
       {"prefers-color-scheme: dark", "tabindex=\"0\"", "aria-label", "<html lang=\"en\">"})
    EXPECT_NE(page.find(needed), page.npos) << needed;
  EXPECT_LT(page.size(), 500'000u);
}

TEST_F(SummaryTest, one_of_a_thing_has_no_plural) {
  JobPlan plan;
  plan.ranks = 1;
  plan.steps = 1;
  const auto summary = summarize_files({write(plan)});
  ASSERT_TRUE(summary.is_ok());
  for (const std::string& shown : {as_text(summary.value()), as_html(summary.value())})
    EXPECT_THAT(shown, HasSubstr("1 rank, epoch 1, 1 step of 15 ms"));
}

// A small copy of a job of 256 ranks and 1,000 steps: reading keeps three steps of each rank.
TEST_F(SummaryTest, memory_does_not_grow_with_the_number_of_steps) {
#if RUEDA_UNDER_ASAN || RUEDA_UNDER_TSAN
  GTEST_SKIP() << "sanitizers keep freed memory";
#endif
  const auto peak_kib = [] {
    struct rusage usage {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const std::string few = write({.ranks = 32, .steps = 50, .calls = 10}, "few.json");
  const std::string many = write({.ranks = 32, .steps = 500, .calls = 10}, "many.json");
  ASSERT_TRUE(summarize_files({few}).is_ok());
  const auto before = peak_kib();
  const auto summary = summarize_files({many});
  ASSERT_TRUE(summary.is_ok());
  EXPECT_EQ(summary.value().steps, 500);
  EXPECT_LT(peak_kib() - before, 8 * 1'024) << "the files have 16 MiB";
}

}  // namespace
}  // namespace rueda::timeline::summary_test
