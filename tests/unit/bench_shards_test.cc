#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "bench/gradients.h"

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

}  // namespace
}  // namespace rueda::bench::shards_test
