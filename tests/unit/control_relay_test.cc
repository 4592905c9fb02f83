// What the leader of a host passes on: equal messages once, and of each rank what it has said, in its order.
#include "rueda/control/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <numeric>
#include <random>

#include "control_fixture.h"

namespace rueda::control::relay_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

Statement requests(const RankSet& from, const std::vector<Request>& all, int64_t plans_begun = 0) {
  return {.from = from, .type = MessageType::kRequests, .payload = encode(plans_begun, all)};
}

Statement say(const RankSet& from, MessageType type, const std::string& text = "") {
  const auto raw = std::as_bytes(std::span(text));
  return {.from = from, .type = type, .payload = {raw.begin(), raw.end()}};
}

// "4,5: a b" for requests.
std::string shown(const Statement& statement) {
  std::string text;
  for (const Rank rank : statement.from.ranks()) text += (text.empty() ? "" : ",") + std::to_string(rank);
  text += ":";
  if (statement.type != MessageType::kRequests)
    return text + " type " + std::to_string(static_cast<int>(statement.type));
  const Submitted submitted = decode_submitted(statement.payload).value();
  for (const Request& request : submitted.requests) text += " " + name_of(request).second;
  return text;
}

// The leader of ranks 4 to 7; set 1 are ranks 5 and 9, set 2 ranks 6 and 7.
class OfFour : public testing::Test {
 protected:
  std::vector<std::string> due(Nanos now = 0) {
    std::vector<std::string> all;
    for (const Statement& statement : relay_.due(now)) all.push_back(shown(statement));
    return all;
  }
  void submit(Rank rank, const std::vector<Request>& all, Nanos now = 0) {
    ASSERT_TRUE(relay_.take(rank, requests(rank, all), now).is_ok());
  }
  void say(Rank rank, MessageType type, const std::string& text = "", Nanos now = 0) {
    ASSERT_TRUE(relay_.take(rank, relay_test::say(rank, type, text), now).is_ok());
  }
  static Request in_set(int32_t set, std::string name) {
    TensorRequest request = allreduce(std::move(name));
    request.process_set = set;
    return request;
  }

  static constexpr Nanos kPatience = 20 * kMillisecond;
  Relay relay_{{.below = RankSet::from_to(4, 7), .sets = {{1, {5, 9}}, {2, {6, 7}}}, .patience = kPatience}};
};

TEST_F(OfFour, equal_requests_leave_once_when_the_last_rank_has_made_them) {
  for (const Rank rank : {4, 5, 6}) submit(rank, {allreduce("a"), allreduce("b")});
  EXPECT_THAT(due(), IsEmpty());
  submit(7, {allreduce("a")});
  EXPECT_THAT(due(), ElementsAre("4,5,6,7: a"));
  submit(7, {allreduce("b")});
  EXPECT_THAT(due(), ElementsAre("4,5,6,7: b"));
  EXPECT_EQ(relay_.next_event(), kLongestTime) << "as of an engine that has nothing to do at any time";
}

TEST_F(OfFour, what_waits_too_long_leaves_with_the_ranks_that_have_made_it) {
  for (const Rank rank : {4, 6}) submit(rank, {allreduce("a")}, kMillisecond);
  EXPECT_EQ(relay_.next_event(), kMillisecond + kPatience);
  EXPECT_THAT(due(kPatience), IsEmpty());
  EXPECT_THAT(due(kMillisecond + kPatience), ElementsAre("4,6: a"));
  for (const Rank rank : {5, 7}) submit(rank, {allreduce("a")}, kSecond);
  EXPECT_THAT(due(kSecond), ElementsAre("5,7: a")) << "the rest waits for nobody";
}

TEST_F(OfFour, requests_that_differ_under_one_name_leave_each_with_its_ranks) {
  for (const Rank rank : {4, 5, 7}) submit(rank, {allreduce("a", {2})});
  submit(6, {allreduce("a", {3})});
  const std::vector<Statement> statements = relay_.due(0);
  ASSERT_THAT(statements, SizeIs(2));
  EXPECT_EQ(statements[0].from.ranks(), (std::vector<Rank>{4, 5, 7}));
  EXPECT_EQ(statements[1].from.ranks(), (std::vector<Rank>{6}));
  const Submitted last = decode_submitted(statements[1].payload).value();
  EXPECT_EQ(std::get<TensorRequest>(last.requests[0]).shape, (std::vector<int64_t>{3}));
}

TEST_F(OfFour, gpus_of_different_numbers_are_no_difference) {
  for (Rank rank = 4; rank < 8; ++rank) {
    TensorRequest request = allreduce("a");
    request.device = rank - 4;
    submit(rank, {request});
  }
  EXPECT_THAT(due(), ElementsAre("4,5,6,7: a"));
}

TEST_F(OfFour, only_the_members_of_a_process_set_are_waited_for) {
  submit(5, {in_set(1, "x")});
  EXPECT_THAT(due(), ElementsAre("5: x"));
  submit(6, {in_set(2, "y")});
  EXPECT_THAT(due(), IsEmpty());
  submit(7, {in_set(2, "y")});
  EXPECT_THAT(due(), ElementsAre("6,7: y"));
}

TEST_F(OfFour, a_set_that_is_added_or_removed_on_the_way_counts_from_then_on) {
  const std::vector<Response> added = {SetAdded{.names = {"n"}, .id = 3, .ranks = {4, 5}}};
  relay_.saw(added);
  submit(4, {in_set(3, "z")});
  EXPECT_THAT(due(), IsEmpty());
  submit(5, {in_set(3, "z")});
  EXPECT_THAT(due(), ElementsAre("4,5: z"));
  const std::vector<Response> removed = {SetRemoved{.names = {"n"}, .id = 3}};
  relay_.saw(removed);
  submit(4, {in_set(3, "z")});
  EXPECT_THAT(due(), ElementsAre("4: z")) << "the coordinator refuses it";
}

TEST_F(OfFour, a_change_of_process_sets_is_one_of_all_ranks) {
  for (const Rank rank : {4, 5, 6}) submit(rank, {add_set({4, 5})});
  EXPECT_THAT(due(), IsEmpty());
  submit(7, {add_set({4, 5})});
  EXPECT_THAT(due(), ElementsAre("4,5,6,7: add_process_set"));
}

TEST_F(OfFour, what_a_rank_has_said_before_leaves_before) {
  submit(4, {allreduce("a"), allreduce("b")});
  for (const Rank rank : {5, 6, 7}) submit(rank, {allreduce("b"), allreduce("a")});
  EXPECT_THAT(due(), ElementsAre("4: a", "4,5,6,7: b", "5,6,7: a"));
}

TEST_F(OfFour, a_group_stays_together) {
  for (Rank rank = 4; rank < 8; ++rank) {
    const Tensors members = group("g", {allreduce(""), allreduce("", {rank == 6 ? 5 : 4})});
    submit(rank, members);
  }
  EXPECT_THAT(due(), ElementsAre("4,5,7: g_1of2 g_2of2", "6: g_1of2 g_2of2"));
}

TEST_F(OfFour, nobody_waits_for_a_rank_that_has_joined_until_all_have) {
  submit(4, {allreduce("a")});
  submit(6, {join()});
  EXPECT_THAT(due(), ElementsAre("4: a", "6: join.noname"));
  for (const Rank rank : {4, 5}) submit(rank, {allreduce("b")});
  EXPECT_THAT(due(), IsEmpty());
  submit(7, {allreduce("b")});
  EXPECT_THAT(due(), ElementsAre("4,5,7: b"));
  const std::vector<Response> joined = {Joined{.names = {"join.noname"}, .last = 7}};
  relay_.saw(joined);
  for (const Rank rank : {4, 5, 7}) submit(rank, {allreduce("c")});
  EXPECT_THAT(due(), IsEmpty());
}

TEST_F(OfFour, a_name_that_is_used_again_after_its_failure_waits_for_all_again) {
  for (const Rank rank : {4, 5}) submit(rank, {allreduce("a")});
  EXPECT_THAT(due(kPatience), ElementsAre("4,5: a"));
  const std::vector<Response> failed = {
      Failure{.process_set = 0, .failed = {{.name = "a", .ranks = {4, 5}}}, .error = "no."}};
  relay_.saw(failed);
  for (const Rank rank : {6, 7}) submit(rank, {allreduce("a")}, kSecond);
  EXPECT_THAT(due(kSecond), IsEmpty());
  for (const Rank rank : {4, 5}) submit(rank, {allreduce("a")}, kSecond);
  EXPECT_THAT(due(kSecond), ElementsAre("4,5,6,7: a"));
}

TEST_F(OfFour, a_rank_that_says_the_same_twice_is_for_the_coordinator_to_judge) {
  submit(4, {allreduce("a")});
  submit(4, {allreduce("a")});
  EXPECT_THAT(due(), ElementsAre("4: a"));
  for (const Rank rank : {5, 6, 7}) submit(rank, {allreduce("a")});
  EXPECT_THAT(due(), ElementsAre("4,5,6,7: a"));
}

TEST_F(OfFour, requests_from_before_a_plan_are_void) {
  submit(4, {allreduce("a")});
  const std::vector<Response> begins = {PlanBegin{.plan_number = 1, .sets = {}}};
  relay_.saw(begins);
  submit(5, {allreduce("a")});
  EXPECT_THAT(due(kSecond), IsEmpty());
  for (Rank rank = 4; rank < 8; ++rank)
    ASSERT_TRUE(relay_.take(rank, requests(rank, {allreduce("a")}, 1), kSecond).is_ok());
  EXPECT_THAT(due(kSecond), ElementsAre("4,5,6,7: a"));
}

TEST_F(OfFour, positions_and_farewells_leave_once_with_the_ranks_that_say_the_same) {
  for (const Rank rank : {4, 5, 6}) say(rank, MessageType::kPlanPosition, "three");
  EXPECT_THAT(due(), IsEmpty());
  say(7, MessageType::kPlanPosition, "two");
  EXPECT_THAT(due(), ElementsAre("4,5,6: type 12", "7: type 12"));
  for (Rank rank = 4; rank < 8; ++rank) say(rank, MessageType::kDone);
  EXPECT_THAT(due(), ElementsAre("4,5,6,7: type 8"));
}

TEST_F(OfFour, what_must_be_known_at_once_waits_for_nobody_and_comes_after_what_its_rank_has_said) {
  submit(4, {allreduce("a")});
  submit(5, {allreduce("a")});
  say(5, MessageType::kShutdown);
  say(6, MessageType::kAbort, "lost");
  EXPECT_THAT(due(), ElementsAre("4,5: a", "5: type 5", "6: type 4"));
}

TEST_F(OfFour, facts_of_all_ranks_leave_together_or_after_a_moment) {
  for (const Rank rank : {4, 5, 7}) say(rank, MessageType::kFacts, std::to_string(rank), kMillisecond);
  EXPECT_THAT(due(kMillisecond), IsEmpty());
  say(6, MessageType::kFacts, "6", kMillisecond);
  EXPECT_THAT(due(kMillisecond), SizeIs(4));
  say(4, MessageType::kFacts, "4", kSecond);
  EXPECT_THAT(due(kSecond), IsEmpty());
  EXPECT_THAT(due(kSecond + kPatience), ElementsAre("4: type 13"));
}

TEST_F(OfFour, what_is_no_message_is_refused) {
  EXPECT_FALSE(relay_.take(5, relay_test::say(5, MessageType::kRequests, "?"), 0).is_ok());
}

TEST(Statements, are_read_as_they_were_written_and_nothing_else_is) {
  std::vector<Statement> statements = {requests(RankSet::from_to(3, 9), {allreduce("a")}),
                                       say(RankSet(std::vector<Rank>{1, 4, 5}), MessageType::kDone)};
  const Bytes raw = encode(statements);
  EXPECT_EQ(decode_statements(raw).value(), statements);
  for (size_t size = 0; size < raw.size(); ++size)
    EXPECT_FALSE(decode_statements(std::span(raw).first(size)).is_ok()) << size;
  statements[0].type = MessageType::kResponses;
  EXPECT_FALSE(decode_statements(encode(statements)).is_ok()) << "it is for those below";
  statements[0] = say({}, MessageType::kDone);
  EXPECT_FALSE(decode_statements(encode(statements)).is_ok()) << "from nobody";
}

// ---- random programs ----

// Ranks in hosts of up to four, whose leaders are below one another; every rank says random things. What the
// root hears of each rank must be what that rank has said.
class RandomTree {
 public:
  explicit RandomTree(uint64_t seed) : random_(seed) {
    ranks_ = 2 + static_cast<Rank>(random_() % 10);
    parents_.assign(static_cast<size_t>(ranks_), -1);
    for (Rank rank = 1; rank < ranks_; ++rank)
      parents_[static_cast<size_t>(rank)] = static_cast<Rank>(random_() % static_cast<uint64_t>(rank));
    sets_[1] = {0, ranks_ - 1};
    for (Rank rank = 1; rank < ranks_; ++rank) {
      RankSet below = rank;
      for (Rank other = 1; other < ranks_; ++other)
        for (Rank at = other; at > 0; at = parents_[static_cast<size_t>(at)])
          if (at == rank) below.add(other);
      if (below.count() > 1) relays_.try_emplace(rank, Relay::Options{.below = below, .sets = sets_});
    }
  }
  void run(int events) {
    for (int i = 0; i < events; ++i) {
      now_ += static_cast<Nanos>(random_() % 8) * kMillisecond;
      const auto rank = 1 + static_cast<Rank>(random_() % static_cast<uint64_t>(ranks_ - 1));
      say_something(rank);
      pump();
    }
    for (int level = 0; level < ranks_; ++level) {  // each holds back what it has got just now
      now_ += kSecond;
      pump();
    }
  }
  void check() const {
    for (Rank rank = 1; rank < ranks_; ++rank) {
      const auto of = [rank](const auto& all) {
        const auto found = all.find(rank);
        return found == all.end() ? std::vector<std::string>() : found->second;
      };
      EXPECT_EQ(of(heard_), of(said_)) << "rank " << rank;
    }
  }
  [[nodiscard]] int64_t said() const { return said_count_; }
  [[nodiscard]] int64_t heard() const { return heard_count_; }

 private:
  void say_something(Rank rank) {
    std::vector<Request> all;
    for (size_t i = 1 + random_() % 3; i > 0; --i) {
      // Mostly the next of the program, in its order.
      int& next = next_[rank];
      const int number = random_() % 10 == 0 ? static_cast<int>(random_() % 50) : next++;
      TensorRequest request = allreduce("t" + std::to_string(number), {random_() % 30 == 0 ? 5 : 4});
      if (number % 5 == 0) request.process_set = 1;
      if (random_() % 200 == 0) request = join();
      all.emplace_back(request);
      said_[rank].push_back(text_of(all.back()));
    }
    ++said_count_;
    deliver(rank, rank, requests(rank, all));
    if (random_() % 40 != 0) return;
    said_[rank].emplace_back("shutdown");
    deliver(rank, rank, say(rank, MessageType::kShutdown));
  }
  static std::string text_of(const Request& request) {
    const auto& tensor = std::get<TensorRequest>(request);
    return tensor.name + shape_string(tensor.shape) + std::to_string(tensor.process_set);
  }
  // To the first that stands above, or the rank itself if others are below it.
  void deliver(Rank at, Rank child, Statement statement) {
    if (at == child && !relays_.contains(at)) at = parents_[static_cast<size_t>(at)];
    if (at > 0) {
      ASSERT_TRUE(relays_.at(at).take(child, std::move(statement), now_).is_ok());
      return;
    }
    ++heard_count_;
    statement.from.for_each([&](Rank rank) {
      if (statement.type != MessageType::kRequests) return heard_[rank].push_back("shutdown");
      const Submitted submitted = decode_submitted(statement.payload).value();
      for (const Request& request : submitted.requests) heard_[rank].push_back(text_of(request));
    });
  }
  void pump() {
    for (auto at = relays_.rbegin(); at != relays_.rend(); ++at)
      for (Statement& statement : at->second.due(now_))
        deliver(parents_[static_cast<size_t>(at->first)], at->first, std::move(statement));
  }

  std::mt19937_64 random_;
  Rank ranks_ = 0;
  std::vector<Rank> parents_;
  SetMembers sets_;
  std::map<Rank, Relay> relays_;
  std::map<Rank, int> next_;
  std::map<Rank, std::vector<std::string>> said_, heard_;
  int64_t said_count_ = 0, heard_count_ = 0;
  Nanos now_ = 0;
};

TEST(RandomTrees, the_root_hears_of_each_rank_what_it_has_said_in_its_order) {
  const char* const wanted = std::getenv("RUEDA_TEST_PROGRAMS");
  const uint64_t programs = wanted == nullptr ? 400 : std::strtoull(wanted, nullptr, 10);
  const uint64_t chosen = std::random_device{}() % 1'000'000;
  int64_t said = 0, heard = 0;
  for (uint64_t i = 0; i < programs && !testing::Test::HasFailure(); ++i) {
    const uint64_t seed = i % 2 == 0 ? i : chosen + i;
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomTree tree(seed);
    tree.run(150);
    tree.check();
    said += tree.said();
    heard += tree.heard();
  }
  std::cout << "[ programs ] " << programs << ": " << said << " messages said, " << heard
            << " statements heard\n";
}

}  // namespace
}  // namespace rueda::control::relay_test
