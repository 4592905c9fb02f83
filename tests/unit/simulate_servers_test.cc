#include "simulate/servers.h"

#include <gmock/gmock.h>

#include "simulate/simulate.h"
#include "simulate/validation.h"

namespace rueda::simulate::servers_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

// Hosts with a rank each and links of 10 Gbit/s, of which all is payload; cores cost nothing.
Request request_of(const char* model, int hosts, const Servers& servers) {
  Request request;
  request.model = workload::stretched(workload::find_model(model).value(), 400, 1);
  request.cluster = parse_cluster("{\"hosts\": " + std::to_string(hosts) +
                                      R"(, "link": {"rate": "10gbit"}, "reduce_gbps": 1000, "costs": {
      "payload": 1, "message_us": 0, "byte_ns": 0, "copy_gbps": 1000}})",
                                  "test")
                        .value();
  request.steps = 4;
  request.split = false;
  request.servers = servers;
  return request;
}

Prediction row_of(const Request& request) { return simulate(request).value().rows.front(); }
Prediction row_of(const char* model, int hosts, const Servers& servers) {
  return row_of(request_of(model, hosts, servers));
}

Servers tensorflow(int servers, bool is_whole = true, bool is_dedicated = true) {
  return {.strategy = Strategy::kTensorflowServers,
          .count = {.servers = servers, .ranks = 0},
          .is_whole = is_whole,
          .is_dedicated = is_dedicated};
}
Servers replayed(int servers, bool is_whole) {
  return {.strategy = Strategy::kParameterServer,
          .count = {.servers = servers, .ranks = 0},
          .is_whole = is_whole,
          .is_dedicated = false};
}

TEST(SimulatedServers, that_hold_the_largest_variable_decide) {
  constexpr double kLargest = 4.0 * 25088 * 4096, kBytesPerMs = 1.25e6;  // the first of the large layers
  const double both_ways = 16 * 2 * kLargest / kBytesPerMs;
  const double few = row_of("vgg16", 16, tensorflow(8)).step_ms;
  const double many = row_of("vgg16", 16, tensorflow(16)).step_ms;
  for (const double step : {few, many}) {
    EXPECT_GE(step, both_ways);
    EXPECT_LE(step, 1.2 * both_ways + 400);
  }
  EXPECT_NEAR(few / many, 1, 0.1);
}

TEST(SimulatedServers, with_variables_that_are_cut_use_all_ports) {
  const double whole = row_of("vgg16", 8, tensorflow(8)).step_ms;
  const double cut = row_of("vgg16", 8, tensorflow(8, false)).step_ms;
  EXPECT_LT(cut, whole / 3);
}

TEST(SimulatedServers, that_take_what_they_have_least_of_are_evenly_loaded) {
  Servers greedy = tensorflow(3);
  greedy.is_greedy =
      true;  // in turns, one of three servers gets all the weights and the others what is small
  const double turns = row_of("inception_v3", 8, tensorflow(3)).step_ms;
  EXPECT_LT(row_of("inception_v3", 8, greedy).step_ms, 0.8 * turns);
}

TEST(SimulatedServers, beside_ranks_spare_the_links_what_these_ranks_send) {
  const Prediction own = row_of("resnet50", 8, tensorflow(2)),
                   shared = row_of("resnet50", 8, tensorflow(2, true, false));
  EXPECT_LT(shared.step_ms, own.step_ms);
  EXPECT_GT(shared.step_ms, own.step_ms * 6 / 8);
  EXPECT_EQ(own.hosts, 8);
  EXPECT_EQ(own.ranks, 8);
  EXPECT_EQ(own.servers, 2);
}

TEST(SimulatedServers, of_a_job_that_only_computes_cost_next_to_nothing) {
  Request request = request_of("resnet50", 2, tensorflow(2));
  request.model = workload::stretched(request.model, 60'000, 1);
  EXPECT_NEAR(row_of(request).efficiency, 1, 0.01);
  request.servers = replayed(2, false);
  EXPECT_NEAR(row_of(request).efficiency, 1, 0.01);
}

// Two ranks with a server each: half of all bytes goes each way, and comes back later.
TEST(SimulatedServers, of_a_replay_use_one_direction_at_a_time) {
  Request request = request_of("vgg16", 2, replayed(2, false));
  request.model = workload::stretched(request.model, 1, 1);
  const double bytes = static_cast<double>(request.model.bytes());
  const double step = row_of(request).step_ms;
  EXPECT_GE(step, bytes / 1.25e6);
  EXPECT_LE(step, 1.1 * bytes / 1.25e6 + 5);
}

TEST(SimulatedServers, of_a_replay_with_whole_variables_wait_for_the_largest) {
  const double cut = row_of("vgg16", 4, replayed(4, false)).step_ms;
  const double whole = row_of("vgg16", 4, replayed(4, true)).step_ms;
  EXPECT_GT(whole, 1.5 * cut);
}

TEST(SimulatedServers, are_late_where_a_rank_is) {
  Request request = request_of("resnet50", 2, replayed(2, false));
  request.model = workload::stretched(request.model, 4000, 1);
  const double usual = row_of(request).step_ms;
  request.late = {{.rank = 1, .share = 0.25}};
  EXPECT_NEAR(row_of(request).step_ms - usual, 1000, 50);
  request.servers = tensorflow(2);
  EXPECT_NEAR(row_of(request).step_ms - usual, 1000, 200);
}

TEST(SimulatedServers, count_the_calls_of_the_steps_that_are_told) {
  for (const Servers& servers : {tensorflow(2), replayed(2, false)}) {
    const Prediction row = row_of("resnet50", 4, servers);
    ASSERT_EQ(row.algorithms.size(), 1U);
    EXPECT_EQ(static_cast<double>(row.algorithms.begin()->second), row.calls * row.steps);
  }
}

TEST(SimulatedServers, give_the_same_report_twice) {
  for (const Servers& servers : {tensorflow(3), tensorflow(3, false, false), replayed(3, true)}) {
    Request request = request_of("resnet50", 4, servers);
    request.noise = {.step = 0.05, .rank = 0.02};
    const std::string report = json(simulate(request).value());
    EXPECT_EQ(report, json(simulate(request).value()));
    EXPECT_THAT(report, HasSubstr(strategy_text(servers)));
    EXPECT_THAT(report, HasSubstr("\"servers\": 3"));
  }
}

TEST(SimulatedServers, are_replayed_to_check_them) {
  int cut = 0, whole = 0;
  for (const Replay& replay : replays(false)) {
    if (replay.strategy != "parameter-server") continue;
    cut += replay.placement == "cut" ? 1 : 0;
    whole += replay.placement == "whole" ? 1 : 0;
    EXPECT_FALSE(replay.is_fitted);
    EXPECT_THAT(command_of(replay, 3, "r.json"), IsSupersetOf({"--servers", "--placement"}));
    EXPECT_THAT(replay.name(), HasSubstr("parameter-server " + replay.servers + ", " + replay.placement));
  }
  EXPECT_GE(cut, 2);
  EXPECT_GE(whole, 2);
  const Measured one{.replay = {.model = "resnet50",
                                .hosts = 4,
                                .strategy = "parameter-server",
                                .servers = "1:4",
                                .placement = "whole"},
                     .compute_ms = 1826,
                     .step_ms = {}};
  const double wire_ms = 2 * 3 * 102.2e6 * 8 / 0.957e9 * 1e3;  // through the port of the server, both ways
  EXPECT_GT(predicted_ms(one, 2, Costs(), 40).value(), wire_ms);
  EXPECT_LT(predicted_ms(one, 2, Costs(), 40).value(), 1826 + wire_ms);
}

TEST(SimulatedServers, that_cannot_be_are_refused_in_a_sentence) {
  const auto why = [](int ranks, const Servers& servers) { return check_servers(servers, ranks).why; };
  EXPECT_EQ(why(4, tensorflow(4)), "");
  EXPECT_EQ(why(4096, {}), "");
  EXPECT_THAT(why(4, tensorflow(5)), HasSubstr("--servers 5 is more than there are ranks, 4"));
  EXPECT_THAT(why(513, tensorflow(5)), HasSubstr("up to 512 are"));
  EXPECT_THAT(why(65, replayed(5, true)), HasSubstr("up to 64 are, with --strategy parameter-server"));
}

}  // namespace
}  // namespace rueda::simulate::servers_test
