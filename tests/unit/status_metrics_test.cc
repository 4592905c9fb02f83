#include "rueda/status/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rueda::status::metrics_test {
namespace {

using testing::HasSubstr;

CallTrace call() {
  return {.what = Collective::kAllreduce,
          .is_planned = true,
          .name = "grad",
          .backend = "local",
          .tensors = 3,
          .bytes = 4'000,
          .submitted = kSecond,
          .ordered = 3 * kSecond,
          .started = 4 * kSecond,
          .ended = 4 * kSecond + kMillisecond};
}

TEST(Meters, a_call_counts_by_collective_and_its_time_by_cause) {
  Meters meters;
  CallTrace negotiated = call();
  negotiated.is_planned = false;
  negotiated.still = kMillisecond;  // all had come
  meters.called(negotiated);
  EXPECT_EQ(meters.calls[0], 1);
  EXPECT_EQ(meters.bytes[0], 4'000);
  EXPECT_EQ(meters.tensors[0], 3);
  EXPECT_EQ(meters.planned_calls, 0);
  EXPECT_EQ(meters.others_ns, 2 * kSecond);
  EXPECT_EQ(meters.queued_ns, kSecond);
  EXPECT_EQ(meters.running_ns, kMillisecond);
  EXPECT_EQ(meters.call_time.sum(), 3 * kSecond + kMillisecond);
}

TEST(Meters, a_bucket_of_a_plan_waits_for_other_ranks_while_its_call_stands_still) {
  Meters meters;
  CallTrace planned = call();
  planned.ended = planned.started + 5 * kSecond;
  planned.still = 4 * kSecond;
  meters.called(planned);
  EXPECT_EQ(meters.planned_calls, 1);
  EXPECT_EQ(meters.others_ns, 4 * kSecond);
  EXPECT_EQ(meters.queued_ns, 3 * kSecond);
  EXPECT_EQ(meters.running_ns, kSecond);
  planned.still = kMillisecond / 2;
  meters.called(planned);
  EXPECT_EQ(meters.others_ns, 4 * kSecond) << "that is the transfer's own time";
}

TEST(Meters, a_late_rank_has_a_place_once_others_have_waited_for_it_for_a_second) {
  Meters meters;
  meters.waited_for(7, kSecond / 2);
  meters.waited_for(7, kSecond / 2);
  meters.waited_for(7, kSecond / 4);
  const std::string text = prometheus_text(families_of(meters, {}), {{"rank", "0"}});
  EXPECT_THAT(text, HasSubstr("rueda_late_seconds_total{rank=\"0\",late_rank=\"7\"} 0.75\n"));
  EXPECT_THAT(text, HasSubstr("rueda_late_seconds_total{rank=\"0\",late_rank=\"other\"} 0.5\n"));
}

TEST(Meters, the_late_ranks_of_a_big_job_share_a_bounded_number_of_places) {
  Meters meters;
  for (Rank rank = 0; rank < 1'000; ++rank) meters.waited_for(rank, 2 * kSecond);
  EXPECT_EQ(meters.late_ranks.back().rank, static_cast<Rank>(Meters::kLateRanks) - 1);
  EXPECT_EQ(meters.other_late_ns, (1'000 - 32) * 2 * kSecond);
}

TEST(Meters, a_rank_that_has_joined_submits_nothing_and_waits_for_nothing) {
  Meters meters;
  CallTrace joined = call();
  joined.submitted = 0;
  meters.called(joined);
  EXPECT_EQ(meters.calls[0], 1);
  EXPECT_EQ(meters.others_ns, 0);
  EXPECT_EQ(meters.call_time.sum(), 0);
}

TEST(Meters, steps_of_the_first_source_count) {
  Meters meters;
  meters.stepped(10 * kMillisecond, 7);
  meters.stepped(15 * kMillisecond, 8);
  meters.stepped(30 * kMillisecond, 7);
  EXPECT_EQ(meters.steps, 2);
  EXPECT_EQ(meters.step_time.sum(), 20 * kMillisecond);
}

TEST(Meters, a_source_that_marks_alone_takes_over) {
  Meters meters;
  for (int i = 1; i <= 3; ++i) meters.stepped(i * kSecond, 7);
  for (int i = 4; i <= 9; ++i) meters.stepped(i * kSecond, 8 + i % 2);  // two in turn
  EXPECT_EQ(meters.steps, 3 + 2);
  for (int i = 10; i <= 19; ++i) meters.stepped(i * kSecond, 0);  // both have gone
  EXPECT_EQ(meters.steps, 3 + 2 + 4);
}

TEST(Meters, recent_steps_are_bounded_by_the_ring) {
  Meters meters;
  EXPECT_EQ(meters.recent_steps().steps, 0);
  for (int i = 1; i <= 100; ++i) meters.stepped(i * kSecond, 1);
  const Meters::Recent recent = meters.recent_steps();
  EXPECT_EQ(recent.steps, 15);
  EXPECT_EQ(recent.began, 85 * kSecond);
  EXPECT_EQ(recent.last, 100 * kSecond);
}

TEST(Histogram, a_value_belongs_to_the_first_bound_that_it_does_not_exceed) {
  Histogram histogram;
  histogram.add(bound_of(0));
  histogram.add(bound_of(0) + 1);
  histogram.add(kLongestTime / 4);
  EXPECT_EQ(histogram.count_in(0), 1);
  EXPECT_EQ(histogram.count_in(1), 1);
  EXPECT_EQ(histogram.count_in(kBounds), 1);
}

TEST(PrometheusText, has_help_type_labels_and_cumulative_buckets) {
  Meters meters;
  meters.called(call());
  meters.stepped(kMillisecond, 1);
  meters.stepped(2 * kMillisecond, 1);
  const std::string text = prometheus_text(families_of(meters, {}), {{"rank", "3"}, {"host", "a\"\\\nb"}});
  EXPECT_THAT(text, HasSubstr("# HELP rueda_calls_total "));
  EXPECT_THAT(text, HasSubstr("# TYPE rueda_calls_total counter\n"));
  EXPECT_THAT(text, HasSubstr("rueda_steps_total{rank=\"3\",host=\"a\\\"\\\\\\nb\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("le=\"0.0008\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("le=\"0.0016\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("le=\"+Inf\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("rueda_step_seconds_sum{rank=\"3\",host=\"a\\\"\\\\\\nb\"} 0.001\n"));
}

TEST(MetricsJson, holds_every_family_with_its_samples) {
  Meters meters;
  meters.called(call());
  const nlohmann::json read = nlohmann::json::parse(metrics_json(families_of(meters, {.in_flight = 4})));
  EXPECT_EQ(read["rueda_operations_in_flight"]["samples"][0]["value"], 4);
  EXPECT_EQ(read["rueda_calls_total"]["samples"][0]["labels"]["collective"], "allreduce");
  EXPECT_EQ(read["rueda_step_seconds"]["type"], "histogram");
}

}  // namespace
}  // namespace rueda::status::metrics_test
