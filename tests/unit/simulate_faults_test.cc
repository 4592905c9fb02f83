#include <gmock/gmock.h>

#include "simulate/simulate.h"
#include "simulate/validation.h"

namespace rueda::simulate::faults_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Four hosts of 1 Gbit/s with a model whose bytes take about as long as its computing.
Measured replay_with(const bench::Faults& faults, double compute_ms = 1000) {
  return {
      .replay = {.model = "resnet50", .hosts = 4, .faults = faults}, .compute_ms = compute_ms, .step_ms = {}};
}

double ms_of(const Measured& measured) { return predicted_ms(measured, 4, Costs(), 40).value(); }

TEST(SimulatedFaults, cost_what_the_slow_place_adds) {
  const double usual = ms_of(replay_with({}));
  const double host = ms_of(replay_with({.hosts = {{1, 250'000'000}}}));
  const double pair = ms_of(replay_with({.pairs = {{0, 1, 250'000'000}}}));
  EXPECT_GT(host, 2 * usual);
  EXPECT_GT(pair, 1.2 * usual);
  EXPECT_LT(pair, host);  // only a part of its bytes goes between the two
}

TEST(SimulatedFaults, cost_what_the_late_rank_computes_longer) {
  const double usual = ms_of(replay_with({}, 4000));
  const double late = ms_of(replay_with({.late = {{2, 0.25}}}, 4000));
  EXPECT_NEAR(late - usual, 1000, 100);
}

TEST(SimulatedFaults, of_ranks_that_there_are_not_are_refused) {
  const Result<double> refused = predicted_ms(replay_with({.late = {{4, 0.5}}}), 4, Costs(), 40);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_THAT(refused.status().why,
              HasSubstr("--late names rank 4; with so many ranks there are ranks 0 to 3"));
}

TEST(SimulatedFaults, a_late_rank_is_jitter) {
  Request request;
  request.model = workload::stretched(workload::find_model("resnet50").value(), 1000, 1);
  request.cluster = parse_cluster(R"({"hosts": 2, "link": {"rate": "10gbit"}})", "test").value();
  request.steps = 4;
  request.late = {{.rank = 1, .share = 0.25}};
  const Prediction row = simulate(request).value().rows.front();
  EXPECT_NEAR(row.losses.jitter_ms, 250, 25);
  EXPECT_EQ(row.bottleneck, "jitter");
  EXPECT_THAT(json(simulate(request).value()), HasSubstr(R"("share": 0.25)"));
}

TEST(SimulatedFaults, are_planted_in_the_replays_that_check_them) {
  int hosts = 0, pairs = 0, late = 0;
  for (const Replay& replay : replays(false)) {
    hosts += replay.faults.hosts.empty() ? 0 : 1;
    pairs += replay.faults.pairs.empty() ? 0 : 1;
    late += replay.faults.late.empty() ? 0 : 1;
    EXPECT_TRUE(replay.faults.check(replay.hosts * replay.per_host, replay.per_host, 1'000'000'000).is_ok());
    if (!replay.faults.late.empty()) {
      EXPECT_THAT(command_of(replay, 3, "r.json"), Contains("--late"));
      EXPECT_THAT(replay.name(), HasSubstr("late by"));
    }
  }
  EXPECT_GE(hosts, 2);
  EXPECT_GE(pairs, 2);
  EXPECT_GE(late, 2);
}

}  // namespace
}  // namespace rueda::simulate::faults_test
