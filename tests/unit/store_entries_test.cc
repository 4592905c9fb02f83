// Entries of several ranks as one value of the store, and how a relay collects them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "rueda/store/entry_batches.h"
#include "rueda/store/key_values.h"

namespace rueda::store::entries_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

const Entries kThree = {{0, "a"}, {2, ""}, {3, "d"}};

TEST(Entries, come_back_as_they_were) {
  EXPECT_EQ(decode_entries(encode_entries(kThree)).value(), kThree);
  EXPECT_EQ(entries_key("init1/", 12), "init1/rank12");
}

TEST(Entries, a_value_that_is_cut_or_longer_or_out_of_order_is_refused) {
  const std::string whole = encode_entries(kThree);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(decode_entries(whole.substr(0, size)).is_ok()) << size;
  EXPECT_FALSE(decode_entries(whole + "x").is_ok());
  std::string twice = encode_entries({{1, ""}, {2, ""}});
  twice[4] = 2;  // the first rank
  EXPECT_FALSE(decode_entries(twice).is_ok());
}

TEST(Entries, a_batch_is_bounded_and_never_empty) {
  Entries large;
  for (Rank rank = 0; rank < 8; ++rank) large[rank] = std::string(kMaxBatchBytes / 3, 'x');
  EXPECT_EQ(entries_of_batch(large), 2u);
  large[0] = std::string(2 * kMaxBatchBytes, 'x');
  EXPECT_EQ(entries_of_batch(large), 1u);
  EXPECT_EQ(entries_of_batch({}), 0u);
}

TEST(Entries, those_that_another_batch_has_are_replaced_there_and_others_go_elsewhere) {
  const BatchMerge merge = merge_batch(encode_entries(kThree), 0, {{0, "a"}, {3, "new"}, {5, "f"}}).value();
  EXPECT_TRUE(merge.is_different);
  EXPECT_THAT(merge.there, ElementsAre(Pair(0, "a"), Pair(2, ""), Pair(3, "new")));
  EXPECT_THAT(merge.elsewhere, ElementsAre(Pair(5, "f")));
  EXPECT_FALSE(merge_batch(encode_entries(kThree), 0, {{2, ""}}).value().is_different);
  EXPECT_FALSE(merge_batch(encode_entries(kThree), 1, {{2, ""}}).is_ok()) << "another key";
}

// A relay whose store answers at once, unless it is told to wait.
class Relay : public ::testing::Test {
 protected:
  void give(ClientId client, Rank rank, const std::string& value, Rank host_size, Op op = Op::kGive) {
    batches_.take(client, {.op = op, .key = "t/", .value = value, .amount = rank, .limit = host_size}, now_,
                  out_);
    answer();
  }
  void pass(Nanos time) {
    now_ += time;
    batches_.expire(now_, out_);
    answer();
  }
  void answer() {
    while (!is_slow_ && !out_.questions.empty()) {
      const auto [question, command] = out_.questions.front();
      out_.questions.erase(out_.questions.begin());
      ++commands_;
      const std::string* const there = store_.find(command.key);
      Reply reply{.code = there == nullptr ? Code::kUnavailable : Code::kOk,
                  .text = there == nullptr ? "" : *there};
      if (command.op == Op::kCompareAndSet)
        reply = {.text = store_.compare_and_set(command.key, command.expected, command.value).value()};
      batches_.answered(question, reply, out_);
    }
  }
  [[nodiscard]] Entries at(Rank lowest) const {
    const std::string* const text = store_.find(entries_key("t/", lowest));
    return text == nullptr ? Entries() : decode_entries(*text).value();
  }
  // The clients that have been answered, each once.
  std::vector<ClientId> answered() {
    std::vector<ClientId> clients;
    for (const auto& [client, reply] : std::exchange(out_.replies, {})) {
      EXPECT_EQ(reply.code, Code::kOk) << reply.text;
      clients.push_back(client);
    }
    return clients;
  }

  EntryBatches batches_{0};
  KeyValues store_;
  BoardOutput out_;
  Nanos now_ = kSecond;
  bool is_slow_ = false;
  int commands_ = 0;
};

TEST_F(Relay, the_ranks_of_a_host_need_one_command) {
  for (Rank rank = 4; rank < 7; ++rank) give(100 + static_cast<ClientId>(rank), rank, "v", 4);
  EXPECT_THAT(answered(), IsEmpty()) << "before the store has it";
  give(107, 7, "v", 4);
  EXPECT_THAT(answered(), UnorderedElementsAre(104, 105, 106, 107));
  EXPECT_THAT(at(4), SizeIs(4));
  EXPECT_EQ(commands_, 1);
  EXPECT_EQ(batches_.due(), std::nullopt);
}

TEST_F(Relay, a_late_rank_keeps_nobody_waiting_and_comes_under_a_key_of_its_own) {
  give(1, 1, "v", 3);
  give(2, 2, "v", 3);
  pass(*batches_.due() - now_);
  EXPECT_THAT(answered(), UnorderedElementsAre(1, 2));
  give(3, 0, "late", 3);
  EXPECT_THAT(answered(), ElementsAre(3));
  EXPECT_THAT(at(1), SizeIs(2)) << "its ranks never change";
  EXPECT_THAT(at(0), ElementsAre(Pair(0, "late")));
}

TEST_F(Relay, a_trickle_of_ranks_is_written_after_a_second) {
  Rank rank = 0;
  for (; commands_ == 0 && rank < 100; ++rank) {
    give(static_cast<ClientId>(rank), rank, "v", 1000);
    pass(40 * kMillisecond);
  }
  EXPECT_LE(rank, 27);
}

TEST_F(Relay, an_announcement_is_answered_at_once) {
  give(1, 1, "", 2, Op::kAnnounce);
  EXPECT_THAT(answered(), ElementsAre(1));
  EXPECT_EQ(commands_, 0);
  give(2, 0, "", 2, Op::kAnnounce);
  EXPECT_THAT(at(0), SizeIs(2));
}

TEST_F(Relay, a_rank_that_goes_before_it_is_written_takes_no_part) {
  give(1, 1, "v", 3);
  give(2, 2, "v", 3);
  batches_.forget(1);
  pass(kSecond);
  EXPECT_THAT(answered(), ElementsAre(2));
  EXPECT_THAT(at(2), SizeIs(1));
  EXPECT_THAT(at(1), IsEmpty());
}

TEST_F(Relay, another_process_with_a_rank_that_was_written_takes_its_place_in_the_batch) {
  give(1, 1, "v", 2);
  give(2, 2, "v", 2);
  EXPECT_THAT(answered(), SizeIs(2));
  give(3, 2, "successor", 2);
  pass(kSecond);
  EXPECT_THAT(answered(), ElementsAre(3));
  EXPECT_THAT(at(1), ElementsAre(Pair(1, "v"), Pair(2, "successor")));
  EXPECT_THAT(at(2), IsEmpty());
}

TEST_F(Relay, a_rank_that_has_dialled_the_store_itself_is_not_written_twice) {
  ASSERT_TRUE(store_.set(entries_key("t/", 1), encode_entries({{1, "v"}})).is_ok());
  give(1, 1, "v", 3);
  give(2, 2, "v", 3);
  give(3, 3, "v", 3);
  EXPECT_THAT(answered(), UnorderedElementsAre(1, 2, 3));
  EXPECT_THAT(at(1), SizeIs(1)) << "its ranks never change";
  EXPECT_THAT(at(2), SizeIs(2));
}

TEST_F(Relay, a_store_that_refuses_is_heard_by_all) {
  is_slow_ = true;
  give(1, 1, "v", 2);
  give(2, 2, "v", 2);
  ASSERT_THAT(out_.questions, SizeIs(1));
  batches_.answered(out_.questions.front().first, {.code = Code::kUnavailable, .text = "full"}, out_);
  ASSERT_THAT(out_.replies, SizeIs(2));
  EXPECT_EQ(out_.replies.front().second.text, "full");
}

TEST_F(Relay, a_key_that_holds_no_batch_is_an_error_and_no_loop) {
  ASSERT_TRUE(store_.set(entries_key("t/", 1), "what is this").is_ok());
  give(1, 1, "v", 1);
  ASSERT_THAT(out_.replies, SizeIs(1));
  EXPECT_NE(out_.replies.front().second.code, Code::kOk);
}

TEST_F(Relay, ranks_out_of_range_are_refused) {
  batches_.take(1, {.op = Op::kGive, .key = "t/", .value = "", .amount = -1}, now_, out_);
  batches_.take(2, {.op = Op::kGive, .key = "t/", .value = "", .amount = int64_t{1} << 32}, now_, out_);
  batches_.take(3, {.op = Op::kGive, .key = "t/", .value = "", .limit = -5}, now_, out_);
  for (const auto& [client, reply] : out_.replies) EXPECT_EQ(reply.code, Code::kInvalidArgument) << client;
  EXPECT_THAT(out_.replies, SizeIs(3));
}

// Whoever lacks a rank asks for the lowest rank that it lacks: this ends with all ranks, whatever batches
// relays have made. Where ranks came twice, to different relays, it may also have to look under the ranks it
// has.
TEST(Batches, a_reader_that_asks_for_the_lowest_rank_it_lacks_finds_all) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const Rank ranks = 1 + static_cast<Rank>(random() % 24);
    KeyValues store;
    std::vector<EntryBatches> relays(1 + random() % 3, EntryBatches(0));
    Nanos now = kSecond;
    BoardOutput out;
    const auto answer = [&](EntryBatches& relay) {
      while (!out.questions.empty()) {
        const auto [question, command] = out.questions.front();
        out.questions.erase(out.questions.begin());
        const std::string* const there = store.find(command.key);
        Reply reply{.code = there == nullptr ? Code::kUnavailable : Code::kOk,
                    .text = there == nullptr ? "" : *there};
        if (command.op == Op::kCompareAndSet)
          reply = {.text = store.compare_and_set(command.key, command.expected, command.value).value()};
        relay.answered(question, reply, out);
      }
    };
    const bool came_twice = seed % 2 == 1;
    std::vector<Rank> order;
    for (Rank rank = 0; rank < ranks; ++rank)
      order.insert(order.end(), came_twice ? 1 + random() % 2 : 1, rank);
    std::shuffle(order.begin(), order.end(), random);
    for (const Rank rank : order) {
      EntryBatches& relay = relays[random() % relays.size()];
      relay.take(7, {.op = Op::kGive, .key = "t/", .value = "v", .amount = rank, .limit = ranks}, now, out);
      answer(relay);
      if (random() % 3 != 0) continue;
      now += 200 * kMillisecond;
      for (EntryBatches& other : relays) {
        other.expire(now, out);
        answer(other);
      }
    }
    now += kSecond;
    for (EntryBatches& relay : relays) {
      relay.expire(now, out);
      answer(relay);
    }
    std::set<Rank> found;
    const auto read = [&](Rank lowest) {
      const std::string* const batch = store.find(entries_key("t/", lowest));
      if (batch == nullptr) return false;
      const Entries entries = decode_entries(*batch).value();
      for (const auto& [one, value] : entries) found.insert(one);
      return true;
    };
    for (Rank rank = 0; rank < ranks; ++rank) {
      if (found.contains(rank) || read(rank)) continue;
      ASSERT_TRUE(came_twice) << "rank " << rank << ", seed " << seed;
      const std::set<Rank> known = found;
      for (const Rank one : known) read(one);
      ASSERT_TRUE(found.contains(rank)) << "rank " << rank << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace rueda::store::entries_test
