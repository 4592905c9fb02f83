// The comparison of predictions with measurements, with measurements that are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "simulate/validation.h"
#include "workload/models.h"

namespace rueda::simulate {
namespace validation_test {

Measured measured(std::string model, bool is_fitted, std::vector<double> step_ms) {
  return {.replay = {.model = std::move(model), .is_fitted = is_fitted},
          .compute_ms = 100,
          .step_ms = std::move(step_ms)};
}

TEST(simulate_validation, errors_count_what_was_not_fitted) {
  Validation validation;
  validation.measured = {measured("m", true, {500}), measured("m", false, {100, 120, 110}),
                         measured("m", false, {200}), measured("m", false, {203}),
                         measured("n", false, {400})};
  validation.predicted_ms = {100, 121, 190, 203, 400};
  const auto report = nlohmann::json::parse(json(validation));
  EXPECT_NEAR(report["median_error"], 0.05, 1e-9) << "of 10, 5, 0 and 0 %: the upper of the middle two";
  EXPECT_NEAR(report["p95_error"], 0.1, 1e-9);
  EXPECT_EQ(report["pairs"], 2) << "200 and 203 are equally good, and n is another model";
  EXPECT_EQ(report["pairs_right"], 2);
  EXPECT_NEAR(report["replays"][0]["error"], -0.8, 1e-9);
  EXPECT_THAT(page(validation), testing::HasSubstr("4 replays predicted: median error 5.0 %"));
}

TEST(simulate_validation, the_costs_of_a_machine_are_found_again) {
  Calibration machine;
  machine.costs.byte_ns = 1;
  machine.costs.message_us = 12;
  std::vector<Measured> all;
  for (const int hosts : {2, 3}) {
    Measured one{.replay = {.model = "resnet50", .hosts = hosts, .rate = "5gbit", .is_fitted = true},
                 .compute_ms = 400,
                 .step_ms = {1}};
    one.step_ms = {predicted_ms(one, 2, machine.costs, machine.latency_us).value()};
    all.push_back(std::move(one));
  }
  const Calibration found = fit(all, 2, {}).value();
  for (const Measured& one : all)
    EXPECT_NEAR(predicted_ms(one, 2, found.costs, found.latency_us).value() / one.median_ms(), 1, 0.03);
  EXPECT_GT(found.tries, 1);
}

TEST(simulate_validation, what_is_written_is_read_again) {
  Validation validation;
  validation.measured = {measured("resnet50", true, {500}), measured("sh train.sh", false, {}),
                         measured("resnet101", false, {700, 701})};
  validation.measured[0].replay.faults = {.late = {{1, 0.25}}};
  validation.measured[2].replay.dilation = 0.5;
  validation.measured[1].replay.program = "sh train.sh";
  validation.measured[1].workload = R"({"name":"w"})";
  validation.measured[1].failed = "no torch";
  validation.is_complete = false;
  validation.is_quick = true;
  validation.repeats = 3;
  validation.program = "sh train.sh";
  validation.cores = 2;
  const std::string text = json(validation);
  Validation again = parse_validation(text, "v.json").value();
  EXPECT_EQ(json(again), text) << "before anything was predicted";
  EXPECT_EQ(again.measured[0].replay.name(), validation.measured[0].replay.name());
  again.predicted_ms = {510, 0, 700};
  EXPECT_THAT(page(again), testing::HasSubstr("not measured: sh train.sh, 2 hosts, 1gbit: no torch"));
  EXPECT_THAT(parse_validation("{}", "v.json").status().why,
              testing::HasSubstr("v.json is no report of rueda simulate --validate"));
}

TEST(simulate_validation, a_replay_that_gave_nothing_counts_nowhere) {
  Validation validation;
  validation.measured = {measured("m", false, {100}), measured("m", false, {})};
  validation.predicted_ms = {110, 0};
  EXPECT_EQ(errors_of(validation).rows, 1);
  EXPECT_EQ(errors_of(validation).pairs, 0);
  EXPECT_NEAR(errors_of(validation).median, 0.1, 1e-9);
  EXPECT_THAT(json(validation), testing::HasSubstr(R"("error": null)"));
}

TEST(simulate_validation, fitted_costs_are_a_cluster_that_can_be_read) {
  Validation validation;
  validation.cores = 2;
  validation.calibration.costs = {.call_us = 31, .byte_ns = 0.75};
  validation.calibration.latency_us = 55;
  const Cluster cluster = parse_cluster(costs_json(validation), "machine.json").value();
  EXPECT_EQ(cluster.latency_us, 55);
  for (const CostField& field : kCostFields)
    EXPECT_EQ(cluster.costs.*field.field, validation.calibration.costs.*field.field) << field.name;
  EXPECT_EQ(cluster.hosts.front().cores, 2);
}

TEST(simulate_validation, a_training_program_is_predicted_from_its_own_workload) {
  const workload::Model model = workload::stretched(workload::find_model("resnet50").value(), 400, 1);
  Measured program{.replay = {.model = "sh train.sh", .hosts = 4, .rate = "5gbit", .program = "sh train.sh"},
                   .compute_ms = 400,
                   .workload = workload::text_of(model)};
  Measured replay{.replay = {.model = "resnet50", .hosts = 4, .rate = "5gbit"}, .compute_ms = 400};
  const double expected = predicted_ms(replay, 4, Costs(), 40).value();
  EXPECT_NEAR(predicted_ms(program, 4, Costs(), 40).value(), expected, 0.02 * expected);
  const std::vector<std::string> words = command_of(program.replay, 5, "r.json");
  EXPECT_EQ(words.back(), "exec sh train.sh");
  EXPECT_THAT(words, testing::Contains("--"));
}

TEST(simulate_validation, a_fit_tells_how_far_it_is_and_ends_with_its_last_try) {
  workload::Model model;
  model.name = "tiny";
  model.source = model.compute_source = "test";
  model.compute_ms = 1;
  model.parameters = {{.name = "a", .count = 100'000}, {.name = "b", .count = 1000}};
  const Measured program{.replay = {.model = "sh train.sh", .program = "sh train.sh", .is_fitted = true},
                         .compute_ms = 1,
                         .step_ms = {20},
                         .workload = workload::text_of(model)};
  for (const bool fits_payload : {true, false}) {
    std::vector<FitProgress> told;
    const auto watch = [&](const FitProgress& now) { told.push_back(now); };
    const Calibration found = fit({&program, 1}, 2, {}, fits_payload, watch).value();
    ASSERT_EQ(std::ssize(told), found.tries);
    for (size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i].tries, static_cast<int>(i) + 1);
    EXPECT_EQ(told.back().most, found.tries);
    EXPECT_LT(told.back().error, told.front().error);
    const double ms = predicted_ms(program, 2, found.costs, found.latency_us).value();
    EXPECT_NEAR(told.back().error, std::abs(std::log(ms / 20)), 1e-9);
  }
}

// Computing alone and the bytes of each replay; what else it takes is in the fifth that is left.
TEST(simulate_validation, all_replays_three_times_end_within_75_minutes) {
  double seconds = 0;
  for (const Replay& replay : replays(false)) {
    const int steps = steps_for(replay, 5, 18);
    EXPECT_GE(steps, 2) << replay.name();
    seconds += 3 * (1 + steps) * least_step_s(replay);
  }
  EXPECT_LT(seconds, 0.8 * 75 * 60);
  EXPECT_EQ(steps_for({.model = "resnet50", .hosts = 2}, 5, 18), 5);
  EXPECT_EQ(steps_for({.model = "vgg16", .hosts = 8}, 5, 18), 2);
}

// What else it takes, starting ranks and fitting above all, is in the quarter that is left.
TEST(simulate_validation, a_calibration_ends_within_a_minute) {
  double seconds = 0;
  std::set<std::string> names;
  for (const Replay& replay : calibration_replays()) {
    EXPECT_TRUE(replay.is_fitted);
    EXPECT_TRUE(names.insert(replay.name()).second) << replay.name();
    EXPECT_THAT(command_of(replay, 5, "r.json"), testing::Contains("--dilation"));
    seconds += (1 + steps_for(replay, kCalibrationSteps, kCalibrationReplayS)) * least_step_s(replay);
  }
  EXPECT_LT(seconds, 45);
}

TEST(simulate_validation, a_page_of_a_calibration_speaks_of_no_predictions) {
  Validation validation;
  validation.measured = {measured("resnet50", true, {500})};
  validation.predicted_ms = {505};
  EXPECT_THAT(page(validation), testing::HasSubstr("the costs are fitted to these:"));
  EXPECT_THAT(page(validation), testing::Not(testing::HasSubstr("predicted: ")));
}

TEST(simulate_validation, at_least_forty_replays_prove_and_others_are_fitted) {
  int proofs = 0, fitted = 0;
  for (const Replay& replay : replays(false)) ++(replay.is_fitted ? fitted : proofs);
  EXPECT_GE(proofs, 40);
  EXPECT_GE(fitted, 8);
  EXPECT_LT(replays(true).size(), 15U);
  EXPECT_EQ(replays(true, "sh train.sh").size(), replays(true).size() + 2) << "on 2 and on 4 hosts";
  const Replay replay{.model = "vgg16", .hosts = 4, .per_host = 2, .strategy = "ring", .cross_step = true};
  EXPECT_EQ(replay.name(), "vgg16, 4 hosts, 1gbit, 2 ranks each, ring, cross-step");
  EXPECT_THAT(command_of(replay, 5, "r.json"), testing::Contains("--cross-step"));
}

}  // namespace validation_test
}  // namespace rueda::simulate
