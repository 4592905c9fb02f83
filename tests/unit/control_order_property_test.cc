// Random programs of several ranks in random interleavings: no order of the dispatch of one makes another
// wait for ever, and each backend gets its calls in the global order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "rueda/control/order.h"

namespace rueda::control::order_property_test {
namespace {

using What = OrderAction::What;
using Memory = Readiness::Memory;
using Random = std::mt19937_64;
int pick(Random& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

constexpr int kBackends = 3;

// A response, and what each member knows of it.
struct Said {
  Response response;
  std::vector<Rank> members;
  int backend = 0;
  std::vector<int> memory;  // [rank] calls of one number share memory on that rank
  bool starts_alone = false;
  [[nodiscard]] bool has(Rank rank) const { return std::ranges::find(members, rank) != members.end(); }
};

// Ranks that are given the same responses, each at a pace of its own. A call is over when all members have
// started it. A backend runs one call on each of its channels, which places choose.
class World {
 public:
  World(Random& random, Rank ranks) : random_(random) {
    for (int& channels : channels_) channels = pick(random_, 1, 2);
    nodes_.resize(static_cast<size_t>(ranks));
    const int length = pick(random_, 1, 60);
    for (int i = 0; i < length; ++i) said_.push_back(random_response());
    starters_.resize(said_.size(), 0);
  }
  void run() {
    while (!is_over()) {
      std::vector<Rank> able;  // ranks that can do something
      for (Rank rank = 0; std::cmp_less(rank, nodes_.size()); ++rank)
        if (can_act(nodes_[rank])) able.push_back(rank);
      ASSERT_FALSE(able.empty()) << "the ranks wait for one another";
      act(able[static_cast<size_t>(pick(random_, 0, static_cast<int>(able.size()) - 1))]);
    }
  }

 private:
  struct Node {
    Order order{kBackends};
    size_t heard = 0;                       // responses
    std::vector<size_t> which;              // [key] of said_
    std::map<int, size_t> last_of_backend;  // that started
  };

  Said random_response() {
    Said said;
    said.response = Joined{};
    if (pick(random_, 0, 9) == 0) return said;
    said.backend = pick(random_, 0, kBackends - 1);
    for (size_t rank = 0; rank < nodes_.size(); ++rank) said.memory.push_back(pick(random_, 0, 30));
    said.starts_alone = pick(random_, 0, 9) == 0;
    const int32_t process_set = pick(random_, 1, (1 << nodes_.size()) - 1);  // its members are the bits
    for (Rank rank = 0; std::cmp_less(rank, nodes_.size()); ++rank)
      if ((process_set >> rank & 1) != 0) said.members.push_back(rank);
    Bucket bucket;
    bucket.what = said.starts_alone ? Collective::kBarrier : Collective::kAllreduce;
    bucket.process_set = process_set;
    said.response = bucket;
    return said;
  }
  [[nodiscard]] bool is_over() const {
    return std::ranges::all_of(
        nodes_, [this](const Node& node) { return node.heard == said_.size() && node.order.is_idle(); });
  }
  [[nodiscard]] bool is_complete(const Node& node, const Ordered& one) const {
    const size_t which = node.which[one.key];
    return starters_[which] == said_[which].members.size();
  }
  [[nodiscard]] bool can_act(const Node& node) const {
    return node.heard < said_.size() || std::ranges::any_of(node.order.running(), [&](const Ordered& one) {
             return is_complete(node, one);
           });
  }
  void act(Rank rank) {
    Node& node = nodes_[rank];
    std::vector<OrderKey> over;
    for (const Ordered& one : node.order.running())
      if (is_complete(node, one)) over.push_back(one.key);
    if (!over.empty() && (node.heard == said_.size() || pick(random_, 0, 1) == 0)) {
      EXPECT_TRUE(node.order.ended(over[pick(random_, 0, static_cast<int>(over.size()) - 1)]));
    } else {
      const Ordered& one = node.order.enqueue(said_[node.heard].response);
      if (one.key >= node.which.size()) node.which.resize(one.key + 1);
      node.which[one.key] = node.heard++;
    }
    settle(rank);
  }
  void settle(Rank rank) {
    Node& node = nodes_[rank];
    OrderAction action = node.order.next();
    while (action.what != What::kNothing) {
      const size_t which = node.which[action.key];
      if (action.what == What::kLook) {
        action = node.order.looked(look(rank, which));
        continue;
      }
      if (action.what == What::kStart) start(rank, which);
      action = node.order.next();
    }
  }
  Readiness look(Rank rank, size_t which) {
    const Node& node = nodes_[rank];
    const Said& said = said_[which];
    if (!said.has(rank)) return {};
    Readiness ready{.backend = static_cast<int16_t>(said.backend), .has_room = true};
    const auto place = static_cast<uint64_t>(
        std::ranges::count_if(said_.begin(), said_.begin() + static_cast<ptrdiff_t>(which),
                              [](const Said& one) { return std::holds_alternative<Bucket>(one.response); }));
    const auto channels = static_cast<uint64_t>(channels_[said.backend]);
    for (const Ordered& one : node.order.running()) {
      const Said& other = said_[node.which[one.key]];
      if (other.memory[rank] == said.memory[rank]) ready.memory = Memory::kInUse;
      if (other.backend == said.backend && one.place % channels == place % channels) ready.has_room = false;
    }
    for (size_t before = 0; before < which; ++before)  // it shares memory, even if that call is over
      if (said_[before].has(rank) && said_[before].memory[rank] == said.memory[rank] &&
          ready.memory == Memory::kItsOwn)
        ready.memory = Memory::kFree;
    return ready;
  }
  void start(Rank rank, size_t which) {
    Node& node = nodes_[rank];
    const Said& said = said_[which];
    ++starters_[which];
    for (const Ordered& one : node.order.running()) {
      const size_t other = node.which[one.key];
      EXPECT_TRUE(other == which || !said.starts_alone);
      EXPECT_TRUE(other == which || said_[other].memory[rank] != said.memory[rank]);
    }
    const auto [last, is_first] = node.last_of_backend.try_emplace(said.backend, which);
    EXPECT_TRUE(is_first || last->second < which) << "each backend gets its calls in the global order";
    last->second = which;
  }

  Random& random_;
  int channels_[kBackends];
  std::vector<Node> nodes_;
  std::vector<Said> said_;
  std::vector<size_t> starters_;  // [response] how many ranks have started it
};

TEST(RandomPrograms, overlapping_process_sets_never_wait_for_one_another_in_a_circle) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %lu\n", seed);
  Random random(seed);
  for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) World(random, pick(random, 1, 4)).run();
}

}  // namespace
}  // namespace rueda::control::order_property_test
