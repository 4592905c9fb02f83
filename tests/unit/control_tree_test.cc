// Random programs give the same answers, the same sentences and the same lists of missing ranks whether the
// coordinator hears each rank, or leaders that speak for their hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "control_fixture.h"
#include "rueda/control/relay.h"

namespace rueda::control::tree_test {
namespace {

// What each rank submits, in its order. Ranks submit the same tensors; some submit something else under a
// name, some leave tensors out and then join, or never come.
struct Program {
  Rank ranks = 0, per_host = 1;
  SetMembers sets;
  std::vector<std::vector<Request>> of_rank;
};

class Author {
 public:
  explicit Author(uint64_t seed) : random_(seed) {}

  Program write() {
    Program program;
    program.per_host = 1 + pick(4);
    program.ranks = program.per_host * (1 + pick(4)) + pick(2);
    program.ranks = std::max<Rank>(program.ranks, 2);
    for (int32_t set = 1; set <= pick(3); ++set) {
      for (Rank rank = 0; rank < program.ranks; ++rank)
        if (pick(2) == 0) program.sets[set].push_back(rank);
      if (program.sets[set].empty()) program.sets[set].push_back(0);
    }
    program.of_rank.resize(static_cast<size_t>(program.ranks));
    const std::vector<Tensors> calls = all_calls(program);
    const Rank joiner = pick(3) == 0 ? pick(program.ranks) : -1;
    const Rank absent = joiner < 0 && pick(3) == 0 ? pick(program.ranks) : -1;
    for (Rank rank = 0; rank < program.ranks; ++rank) {
      size_t count = calls.size();
      if (rank == joiner || rank == absent) count -= static_cast<size_t>(pick(4));
      for (size_t i = 0; i < count; ++i) add(program, rank, calls[i]);
      if (rank == joiner) program.of_rank[static_cast<size_t>(rank)].emplace_back(join());
    }
    return program;
  }
  std::mt19937_64& random() { return random_; }

 private:
  Rank pick(Rank below) { return static_cast<Rank>(random_() % static_cast<uint64_t>(below)); }
  std::vector<Tensors> all_calls(const Program& program) {
    std::vector<Tensors> calls;
    for (int i = 0; i < 12; ++i) {
      const std::string name = "t" + std::to_string(i);
      TensorRequest request = allreduce(name);
      const Rank kind = pick(8);
      if (kind == 0) request = collective(Collective::kAllgather, name);
      if (kind == 1) request = collective(Collective::kBroadcast, name);
      if (kind == 2) request = collective(Collective::kBarrier, name, {});
      request.process_set = pick(static_cast<Rank>(program.sets.size()) + 1);
      if (kind == 1 && request.process_set != 0) request.root = program.sets.at(request.process_set).front();
      if (kind == 3)
        calls.push_back(group(name, {allreduce(""), allreduce("", {2})}));
      else
        calls.push_back({request});
    }
    return calls;
  }
  void add(Program& program, Rank rank, const Tensors& call) {
    const int32_t set = call.front().process_set;
    if (!is_member(program.sets, set, rank)) return;
    Tensors mine = call;
    // What differs: rows of an allgather, which may; and what may not.
    if (mine[0].what == Collective::kAllgather) mine[0].shape[0] = 1 + rank;
    if (mine.size() == 1 && pick(40) == 0) mine[0].dtype = DType::kInt32;
    if (mine.size() == 1 && pick(40) == 0) mine[0].shape.push_back(2 + pick(2));
    for (TensorRequest& one : mine) program.of_rank[static_cast<size_t>(rank)].emplace_back(one);
  }

  std::mt19937_64 random_;
};

// What became of the names, in no order: ranks run at their own pace.
struct Outcome {
  std::multiset<std::string> answers, waiting;

  bool operator==(const Outcome&) const = default;
};

class Played {
 public:
  Played(const Program& program, bool has_leaders) : program_(program), coordinator_(options(program)) {
    for (Rank leader = program.per_host; has_leaders && leader < program.ranks; leader += program.per_host) {
      const Rank last = std::min(leader + program.per_host, program.ranks) - 1;
      if (last > leader)
        relays_.try_emplace(leader,
                            Relay::Options{.below = RankSet::from_to(leader, last), .sets = program.sets});
    }
  }

  Outcome run(std::mt19937_64& random) {
    std::vector<std::deque<Request>> left;
    for (const auto& all : program_.of_rank) left.emplace_back(all.begin(), all.end());
    const auto has_more = [](const auto& queue) { return !queue.empty(); };
    while (std::ranges::any_of(left, has_more)) {
      const auto rank = static_cast<Rank>(random() % left.size());
      submit(rank, take_some(left[static_cast<size_t>(rank)], random));
      now_ += static_cast<Nanos>(random() % 4) * kMillisecond;
      pump();
    }
    now_ += kSecond;
    pump();
    Outcome outcome{.answers = answers_, .waiting = {}};
    for (const StalledTensor& one : coordinator_.waiting_longer_than(0, now_ + kSecond)) {
      std::vector<Rank> waiting = one.waiting;
      std::ranges::sort(waiting);
      outcome.waiting.insert(one.name + " of " + shape_string({waiting.begin(), waiting.end()}) + " lacks " +
                             shape_string({one.missing.begin(), one.missing.end()}));
    }
    return outcome;
  }
  [[nodiscard]] int64_t heard() const { return heard_; }

 private:
  static CoordinatorOptions options(const Program& program) {
    CoordinatorOptions options = world_of(program.ranks);
    options.process_sets = program.sets;
    options.fusion_bytes = 0;  // what is fused depends on when it comes
    return options;
  }
  // All of a group at once.
  static std::vector<Request> take_some(std::deque<Request>& queue, std::mt19937_64& random) {
    std::vector<Request> some;
    for (size_t most = 1 + random() % 3; !queue.empty(); queue.pop_front()) {
      const auto& tensor = std::get<TensorRequest>(queue.front());
      if (some.size() >= most && tensor.group_index == 0) break;
      some.push_back(queue.front());
    }
    return some;
  }
  void submit(Rank rank, const std::vector<Request>& some) {
    if (some.empty()) return;
    const Rank leader = rank - rank % program_.per_host;
    if (const auto relay = relays_.find(leader); relay != relays_.end())
      ASSERT_TRUE(relay->second.take(rank, {.from = rank, .payload = encode(0, some)}, now_).is_ok());
    else
      hear(rank, some);
  }
  void hear(const RankSet& from, std::vector<Request> requests) {
    ++heard_;
    coordinator_.submit(from, std::move(requests), now_, nullptr);
  }
  void pump() {
    for (auto& [leader, relay] : relays_)
      for (const Statement& statement : relay.due(now_))
        hear(statement.from, decode_submitted(statement.payload).value().requests);
    const std::vector<Response> responses = coordinator_.take_ready();
    for (auto& [leader, relay] : relays_) relay.saw(responses);
    for (const Response& response : responses) note(response);
  }
  void note(const Response& response) {
    Response plain = response;
    if (auto* failure = std::get_if<Failure>(&plain)) {
      for (FailedName& one : failure->failed) std::ranges::sort(one.ranks);
      for (const FailedName& one : failure->failed)
        answers_.insert(one.name + " of " + shape_string({one.ranks.begin(), one.ranks.end()}) + ": " +
                        failure->error);
      return;
    }
    const Bytes raw = encode(std::span(&plain, 1));
    answers_.insert(std::string(reinterpret_cast<const char*>(raw.data()), raw.size()));
  }

  const Program& program_;
  Coordinator coordinator_;
  std::map<Rank, Relay> relays_;
  std::multiset<std::string> answers_;
  int64_t heard_ = 0;
  Nanos now_ = 0;
};

TEST(Tree, random_programs_have_the_outcome_that_they_have_without_leaders) {
  const char* const wanted = std::getenv("RUEDA_TEST_PROGRAMS");
  const uint64_t programs = wanted == nullptr ? 2'000 : std::strtoull(wanted, nullptr, 10);
  const uint64_t chosen = std::random_device{}() % 1'000'000;
  int64_t star_heard = 0, tree_heard = 0, failures = 0, waiting = 0;
  for (uint64_t i = 0; i < programs && !testing::Test::HasFailure(); ++i) {
    const uint64_t seed = i % 2 == 0 ? i : chosen + i;
    SCOPED_TRACE("seed " + std::to_string(seed));
    Author author(seed);
    const Program program = author.write();
    Played star(program, false), tree(program, true);
    const Outcome without = star.run(author.random()), with = tree.run(author.random());
    EXPECT_EQ(with.answers, without.answers);
    EXPECT_EQ(with.waiting, without.waiting);
    star_heard += star.heard();
    tree_heard += tree.heard();
    for (const std::string& one : with.answers) failures += one.find(": Mismatched") != std::string::npos;
    waiting += std::ssize(with.waiting);
  }
  std::cout << "[ programs ] " << programs << ": " << star_heard << " messages without leaders, "
            << tree_heard << " with them; " << failures << " mismatches, " << waiting
            << " tensors left waiting\n";
  // A single program may have more, with hosts of one rank.
  if (programs >= 100) {
    EXPECT_LT(tree_heard, star_heard);
  }
}

TEST(Tree, requests_of_many_ranks_at_once_count_for_each_of_them) {
  CoordinatorOptions options = world_of(6);
  options.process_sets = {{1, {1, 2, 3}}};
  Coordinator coordinator(options);
  TensorRequest in_set = allreduce("s");
  in_set.process_set = 1;
  coordinator.submit(RankSet::from_to(2, 5), {allreduce("a"), in_set}, 0, nullptr);
  std::vector<Response> refused = coordinator.take_ready();
  ASSERT_EQ(refused.size(), 2u) << "ranks 4 and 5 are no members";
  EXPECT_THAT(error_of(refused[0]), testing::HasSubstr("Rank 4 is not a member"));
  EXPECT_THAT(error_of(refused[1]), testing::HasSubstr("Rank 5 is not a member"));
  coordinator.submit(1, {allreduce("a"), in_set}, 0, nullptr);
  coordinator.submit(RankSet::from_to(0, 1), {allreduce("a")}, 0, nullptr);  // rank 1 again
  const std::vector<Response> responses = coordinator.take_ready();
  ASSERT_EQ(responses.size(), 2u);
  EXPECT_THAT(names(responses[0]), testing::ElementsAre("s"));
  EXPECT_THAT(error_of(responses[1]), testing::HasSubstr("Rank 1 submitted a with the same name"));
}

}  // namespace
}  // namespace rueda::control::tree_test
