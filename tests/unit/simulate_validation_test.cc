// The comparison of predictions with measurements, with measurements that are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "simulate/validation.h"

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

TEST(simulate_validation, at_least_forty_replays_prove_and_others_are_fitted) {
  int proofs = 0, fitted = 0;
  for (const Replay& replay : replays(false)) ++(replay.is_fitted ? fitted : proofs);
  EXPECT_GE(proofs, 40);
  EXPECT_GE(fitted, 8);
  EXPECT_LT(replays(true).size(), 15U);
  const Replay replay{.model = "vgg16", .hosts = 4, .per_host = 2, .strategy = "ring", .cross_step = true};
  EXPECT_EQ(replay.name(), "vgg16, 4 hosts, 1gbit, 2 ranks each, ring, cross-step");
  EXPECT_THAT(command_of(replay, 5, "r.json"), testing::Contains("--cross-step"));
}

}  // namespace validation_test
}  // namespace rueda::simulate
