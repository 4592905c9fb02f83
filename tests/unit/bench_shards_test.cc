#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "bench/gradients.h"
#include "bench/placement.h"
#include "workload/models.h"

namespace rueda::bench::shards_test {
namespace {

TEST(Shards, every_element_has_one_server_and_loads_are_even) {
  for (const char* name : {"resnet50", "vgg16"}) {
    const workload::Model model = workload::find_model(name).value();
    std::vector<int64_t> counts;
    for (const workload::Parameter& parameter : model.parameters) counts.push_back(parameter.count);
    for (const int servers : {1, 2, 3, 8}) {
      const auto shards = assign_shards(counts, servers);
      std::vector<int64_t> load(static_cast<size_t>(servers));
      for (size_t tensor = 0; tensor < shards.size(); ++tensor) {
        EXPECT_EQ(std::accumulate(shards[tensor].begin(), shards[tensor].end(), int64_t{0}), counts[tensor]);
        for (size_t server = 0; server < load.size(); ++server) load[server] += shards[tensor][server];
      }
      const auto [least, most] = std::ranges::minmax(load);
      EXPECT_LE(most - least, 20'000) << name << " on " << servers;
    }
  }
}

TEST(Shards, small_tensor_goes_whole_to_the_emptiest_server) {
  const std::vector<int64_t> counts = {10, 4, 3};
  EXPECT_EQ(assign_shards(counts, 2), (std::vector<std::vector<int32_t>>{{10, 0}, {0, 4}, {0, 3}}));
}

std::vector<int64_t> counts_of(const workload::Model& model) {
  std::vector<int64_t> counts;
  for (const workload::Parameter& parameter : model.parameters) counts.push_back(parameter.count);
  return counts;
}

// Each element is in one piece, the pieces of a tensor are in order, and those of a transfer by server.
void expect_whole(const std::vector<Transfer>& transfers, const std::vector<int64_t>& counts) {
  std::vector<int64_t> sent(counts.size());
  for (const Transfer& transfer : transfers) {
    EXPECT_TRUE(std::ranges::is_sorted(transfer.pieces, {}, &ServerPiece::server));
    size_t last = 0;
    for (const ServerPiece& piece : transfer.pieces) {
      EXPECT_EQ(piece.first, sent[piece.tensor]);
      EXPECT_GT(piece.count, 0);
      sent[piece.tensor] += piece.count;
      last = std::max(last, piece.tensor);
    }
    EXPECT_EQ(transfer.last_tensor, last);
  }
  EXPECT_EQ(sent, counts);
}

TEST(Transfers, hold_every_element_once) {
  for (const std::string& name : workload::model_names()) {
    const workload::Model model = workload::find_model(name).value();
    const std::vector<int64_t> counts = counts_of(model);
    for (const int servers : {1, 2, 3, 8}) {
      expect_whole(cut_transfers(counts, servers), counts);
      for (const double ms_per_element : {0.0, 1e-6, 1e-3})
        expect_whole(whole_transfers(counts, servers, model.ready_ms(), ms_per_element), counts);
    }
  }
}

TEST(Transfers, of_whole_variables_go_to_the_servers_in_turns_from_the_first_layer) {
  const std::vector<int64_t> counts = {1, 1, 1, 1, 1};  // the gradient of the first layer is the last one
  const std::vector<double> ready(5, 1.0);
  for (const Transfer& transfer : whole_transfers(counts, 2, ready, 1))
    for (const ServerPiece& piece : transfer.pieces) EXPECT_EQ(piece.server, piece.tensor % 2 == 0 ? 0 : 1);
  EXPECT_EQ(server_of(4, 5, 2), 0);
  EXPECT_EQ(server_of(3, 5, 2), 1);
}

TEST(Transfers, hold_what_is_ready_when_the_one_before_has_been_sent) {
  const std::vector<int64_t> counts = {3 * kMostOfServer, 10, 20};  // of servers 0, 1 and 0
  const double one_ms = 1.0 / static_cast<double>(kMostOfServer);
  const std::vector<Transfer> transfers = whole_transfers(counts, 2, std::vector<double>{5, 5.5, 7}, one_ms);
  ASSERT_EQ(transfers.size(), 4U);
  EXPECT_EQ(transfers[0].pieces.size(), 1U);  // at 5 ms; nothing else is ready
  EXPECT_EQ(transfers[0].elements(), kMostOfServer);
  ASSERT_EQ(transfers[1].pieces.size(), 2U);  // at 6 ms
  EXPECT_EQ(transfers[1].pieces[1].tensor, 1U);
  EXPECT_EQ(transfers[2].elements(), kMostOfServer);  // at 7 ms, the third tensor waits for the first
  EXPECT_EQ(transfers[3].elements(), 20);
  EXPECT_EQ(transfers[3].last_tensor, 2U);
}

TEST(Transfers, of_vgg16_keep_one_server_busy_whatever_their_number) {
  const workload::Model model = workload::find_model("vgg16").value();
  const std::vector<int64_t> counts = counts_of(model);
  for (const int servers : {2, 4, 8}) {
    std::vector<int64_t> load(static_cast<size_t>(servers));
    for (size_t i = 0; i < counts.size(); ++i)
      load[static_cast<size_t>(server_of(i, counts.size(), servers))] += counts[i];
    EXPECT_GE(*std::ranges::max_element(load), 102'760'448) << servers;  // of 138 millions: classifier.0
  }
}

TEST(ServerPlan, spreads_servers_over_the_ranks) {
  const ServerPlan plan{.servers = 3};
  std::vector<int> ranks;
  for (int server = 0; server < 3; ++server) ranks.push_back(plan.rank_of(server, 8));
  EXPECT_THAT(ranks, testing::ElementsAre(0, 2, 5));
}

}  // namespace
}  // namespace rueda::bench::shards_test
