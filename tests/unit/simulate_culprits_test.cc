// One thing is planted in each cluster that is slower than its like, and the report names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "simulate/runs.h"
#include "simulate/simulate.h"

namespace rueda::simulate {
namespace culprits_test {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Planted {
  const char* model;
  int hosts, per_host;
  const char* rate;
  json change;  // of hosts[2] (by default), or what is added to the file
  const char* kind;
  std::vector<std::string> where;
  double dilation = 1;
  std::vector<bench::LateRank> late = {};
};

Cluster cluster_of(const Planted& planted) {
  json file = {{"hosts", json::array()}, {"link", {{"rate", planted.rate}}}};
  for (int i = 0; i < planted.hosts; ++i)
    file["hosts"].push_back({{"name", "h" + std::to_string(i)}, {"ranks", planted.per_host}});
  for (const auto& [key, value] : planted.change.items()) {
    if (key == "host")
      file["hosts"][2].update(value);
    else if (key == "every host")
      for (json& host : file["hosts"]) host.update(value);
    else
      file[key] = value;
  }
  const Result<Cluster> cluster = parse_cluster(file.dump(), "c.json");
  EXPECT_TRUE(cluster.is_ok()) << cluster.status().why;
  return cluster.value();
}

Request request_of(const Planted& planted) {
  Request request;
  request.model = workload::stretched(workload::find_model(planted.model).value(), 0, planted.dilation);
  request.cluster = cluster_of(planted);
  request.late = planted.late;
  request.steps = 4;
  return request;
}

std::vector<Culprit> culprits_of(const Planted& planted) {
  const Request request = request_of(planted);
  const Result<std::vector<Culprit>> found = find_culprits(request, request.cluster, {}, 2);
  EXPECT_TRUE(found.is_ok()) << found.status().why;
  return found.value();
}

Prediction predict(const Planted& planted) {
  const Result<Report> report = simulate(request_of(planted));
  EXPECT_TRUE(report.is_ok()) << report.status().why;
  return report.value().rows.front();
}

json link(const char* one, const char* other, const char* rate) {
  return {{"links", {{{"hosts", {one, other}}, {"rate", rate}}}}};
}
json host(const char* key, const json& value) { return {{"host", {{key, value}}}}; }

TEST(simulate_culprits, what_was_planted_is_named) {
  const json busy_cores = {{"byte_ns", 1.5}};
  const std::vector<Planted> all = {
      {"resnet50", 4, 1, "10gbit", host("rate", "1gbit"), "port", {"h2"}},
      {"vgg16", 4, 1, "10gbit", host("rate", "5gbit"), "port", {"h2"}},
      {"resnet101", 8, 1, "25gbit", host("rate", "2gbit"), "port", {"h2"}},
      {"resnet50", 16, 1, "25gbit", host("rate", "2gbit"), "port", {"h2"}},
      {"resnet101", 3, 2, "10gbit", host("rate", "2gbit"), "port", {"h2"}},
      {"resnet50", 4, 1, "10gbit", link("h1", "h3", "1gbit"), "link", {"h1", "h3"}},
      {"vgg16", 4, 1, "10gbit", link("h0", "h1", "2gbit"), "link", {"h0", "h1"}},
      {"resnet101", 8, 1, "10gbit", link("h4", "h5", "1gbit"), "link", {"h4", "h5"}},
      {"gpt2", 4, 2, "25gbit", link("h0", "h2", "2gbit"), "link", {"h0", "h2"}},
      {"resnet50", 16, 1, "10gbit", link("h2", "h3", "1gbit"), "link", {"h2", "h3"}},
      {"resnet50", 4, 1, "25gbit", host("speed", 0.8), "speed", {"h2"}, 4},
      {"bert_base", 4, 2, "100gbit", host("speed", 0.9), "speed", {"h2"}},
      {"resnet101", 16, 1, "100gbit", host("speed", 0.7), "speed", {"h2"}},
      {"resnet50", 128, 1, "100gbit", host("speed", 0.7), "speed", {"h2"}},
      {"resnet50", 4, 1, "25gbit", {}, "rank", {"1"}, 4, {{1, 0.2}}},
      {"resnet50", 8, 1, "100gbit", {}, "rank", {"5"}, 1, {{5, 0.3}}},
      {"resnet50", 4, 4, "100gbit", {}, "rank", {"7"}, 1, {{7, 0.2}}},
      {"resnet50", 3, 4, "100gbit", {{"host", {{"cores", 1}}}, {"costs", busy_cores}}, "cores", {"h2"}},
      {"vgg16", 4, 2, "40gbit", {{"host", {{"cores", 1}}}, {"costs", busy_cores}}, "cores", {"h2"}},
      {"bert_base",
       4,
       1,
       "10gbit",
       {{"every host", {{"machine", "m"}, {"cores", 1}}}, {"costs", busy_cores}},
       "cores",
       {"h0", "h1", "h2", "h3"}},
  };
  // With a sanitizer (tools/run_tests.py) the small ones: the others take the same ways ten times as long.
  const bool is_short = std::getenv("RUEDA_TEST_PROGRAMS") != nullptr;
  size_t named = 0, asked = 0;
  for (const Planted& planted : all) {
    if (is_short && planted.hosts * planted.per_host > 4) continue;
    ++asked;
    const std::vector<Culprit> found = culprits_of(planted);
    const std::string about = std::string(planted.model) + " on " + std::to_string(planted.hosts) + ": " +
                              planted.change.dump() + " " + planted.kind;
    if (found.empty()) {
      ADD_FAILURE() << about << " is not named";
      continue;
    }
    const Culprit& first = found.front();
    EXPECT_EQ(first.kind, planted.kind) << about;
    EXPECT_EQ(first.where, planted.where) << about;
    named += first.kind == planted.kind && first.where == planted.where ? 1 : 0;
  }
  EXPECT_EQ(named, asked);
  EXPECT_EQ(asked, is_short ? 7 : 20);
}

TEST(simulate_culprits, nobody_is_named_where_all_are_alike) {
  EXPECT_THAT(culprits_of({"resnet50", 4, 2, "1gbit", {}, "", {}}), IsEmpty());
  EXPECT_THAT(culprits_of({"resnet50", 4, 1, "1gbit", {{"every host", {{"cores", 4}}}}, "", {}}), IsEmpty());
}

TEST(simulate_culprits, a_late_rank_costs_what_it_computes_longer) {
  const Prediction row = predict({"resnet50", 2, 1, "100gbit", {}, "rank", {"1"}, 10, {{1, 0.25}}});
  ASSERT_EQ(row.culprits.size(), 1U);
  EXPECT_EQ(row.culprits[0].text, "rank 1, which computes 25 % longer");
  EXPECT_NEAR(row.culprits[0].gain_ms, 0.25 * row.compute_ms, 0.02 * row.compute_ms);
}

TEST(simulate_culprits, uplinks_that_carry_too_little_are_named) {
  const json tiers = {{"tiers", {{{"hosts", 2}, {"oversubscription", 8}}}}};
  const std::vector<Culprit> found = culprits_of({"resnet50", 4, 1, "10gbit", tiers, "", {}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, "tier");
  EXPECT_EQ(found[0].text, "the uplinks of switches over 2 hosts, 8:1");
}

TEST(simulate_culprits, two_slow_ports_that_hide_behind_each_other_are_named_together) {
  const Planted planted{"resnet50", 4, 1, "10gbit", host("rate", "1gbit"), "port", {}};
  Request request = request_of(planted);
  request.cluster.hosts[0].rate_bits = 1e9;
  const Report report = simulate(request).value();
  const Culprit& first = report.rows[0].culprits.at(0);
  EXPECT_EQ(first.text, "the slow ports of 2 hosts");
  EXPECT_THAT(first.where, ElementsAre("h0", "h2"));
  EXPECT_THAT(page(report), HasSubstr(" ms of a step to the slow ports of 2 hosts\n"));
}

TEST(simulate_culprits, a_host_whose_links_were_all_measured_slow_has_a_slow_port) {
  json file = {{"asked", {"a", "b", "c", "d"}},
               {"ranks", 4},
               {"findings", json::array()},
               {"hosts", json::array()},
               {"links", json::array()}};
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  for (const std::string& name : names) file["hosts"].push_back({{"host", name}, {"cores", 8}});
  for (size_t i = 0; i < names.size(); ++i)
    for (size_t k = i + 1; k < names.size(); ++k)
      file["links"].push_back({{"hosts", {names[i], names[k]}}, {"gbit_per_s", k == 3 ? 2 : 9.4}});
  Request request;
  request.model = workload::find_model("resnet50").value();
  request.cluster = parse_cluster(file.dump(), "preflight.json").value();
  request.steps = 4;
  const Report report = simulate(request).value();
  EXPECT_EQ(report.rows[0].culprits.at(0).text, "the port of host d, 2 Gbit/s");
  const json row = json::parse(simulate::json(report))["results"][0];
  EXPECT_EQ(row["culprits"][0]["kind"], "port");
  EXPECT_EQ(row["culprits"][0]["where"], json({"d"}));
  EXPECT_EQ(row["culprits"][0]["gain_ms"], report.rows[0].culprits[0].gain_ms);
}

TEST(simulate_culprits, hosts_of_different_speed_lose_what_they_cost_to_jitter) {
  const Prediction row = predict({"resnet50", 4, 1, "100gbit", host("speed", 0.5), "speed", {}, 10});
  EXPECT_NEAR(row.losses.jitter_ms, row.compute_ms, 0.05 * row.compute_ms);
  EXPECT_EQ(row.bottleneck, "jitter");
}

TEST(simulate_losses, are_of_the_steps_that_are_told) {
  Request request = request_of({"vgg16", 4, 1, "10gbit", {}, "", {}});
  request.noise = {.step = 0.2, .rank = 0, .seed = 3};
  request.steps = 12;
  request.split = true;
  const Prediction row = simulate(request).value().rows.front();
  EXPECT_EQ(row.lost_steps, row.steps);
  const Case one(request, request.cluster, {});
  EXPECT_NEAR(row.compute_ms + row.losses.sum_ms(), run_case(one, kAllCauses, 12).value().mean_ms(), 0.01);
}

TEST(simulate_losses, of_many_ranks_are_of_fewer_steps) {
  Request request = request_of({"vgg16", 1, 128, "10gbit", {}, "", {}});
  request.steps = 6;
  const Prediction row = simulate(request).value().rows.front();
  EXPECT_EQ(row.lost_steps, 4) << "512 by the number of ranks";
  EXPECT_EQ(row.steps, 6);
}

TEST(simulate_losses, have_one_row_for_a_number_of_ranks_that_is_given_twice) {
  Request request = request_of({"vgg16", 4, 1, "10gbit", {}, "", {}});
  request.steps = 2;
  request.split = false;
  request.ranks = {4, 2, 4};
  const Report report = simulate(request).value();
  ASSERT_EQ(report.rows.size(), 2U);
  EXPECT_EQ(report.rows[0].ranks, 4);
  EXPECT_EQ(report.rows[1].ranks, 2);
}

}  // namespace culprits_test
}  // namespace rueda::simulate
