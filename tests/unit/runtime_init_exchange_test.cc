// Where ranks meet again and again, with other numbers and other processes each time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <thread>

#include "rueda/base/sleep.h"
#include "rueda/runtime/init_exchange.h"
#include "rueda/store/ended.h"
#include "rueda/store/entries.h"
#include "runtime_store_folder.h"

namespace rueda::runtime::init_exchange_test {
namespace {

using testing::HasSubstr;

class RendezvousPointTest : public StoreFolder {
 protected:
  // Every place gets its rank and the size of the world; the numbers under which they meet, by place.
  std::vector<Epoch> meet(const std::vector<std::pair<RendezvousPoint*, Rank>>& members) {
    std::vector<std::future<Epoch>> numbers;
    for (const auto& [place, rank] : members) {
      numbers.push_back(std::async(std::launch::async, [&, place = place, rank = rank] {
        return next(*place, rank, static_cast<Rank>(members.size()));
      }));
    }
    std::vector<Epoch> all;
    for (auto& number : numbers) all.push_back(number.get());
    for (const auto& [place, rank] : members)
      if (rank == 0) place->close_exchange();
    return all;
  }
};

TEST_F(RendezvousPointTest, no_number_comes_twice_whatever_rank_or_size_changed) {
  RendezvousPoint a, b, c;
  EXPECT_EQ(meet({{&a, 0}, {&b, 1}, {&c, 2}}), (std::vector<Epoch>{1, 1, 1}));
  EXPECT_EQ(meet({{&a, 0}, {&b, 1}, {&c, 2}}), (std::vector<Epoch>{2, 2, 2}));
  EXPECT_EQ(meet({{&a, 0}, {&b, 2}, {&c, 1}}), (std::vector<Epoch>{3, 3, 3}));  // other ranks
  EXPECT_EQ(meet({{&a, 0}, {&c, 1}}), (std::vector<Epoch>{4, 4}));              // another size
  EXPECT_EQ(meet({{&a, 0}, {&b, 1}, {&c, 2}}), (std::vector<Epoch>{5, 5, 5}));  // one stayed away
}

TEST_F(RendezvousPointTest, a_process_new_to_the_job_joins_the_others) {
  RendezvousPoint a, b;
  meet({{&a, 0}, {&b, 1}});
  meet({{&a, 0}, {&b, 1}});
  RendezvousPoint restarted;
  EXPECT_EQ(meet({{&a, 0}, {&restarted, 1}}), (std::vector<Epoch>{3, 3}));
}

TEST_F(RendezvousPointTest, a_new_rank_0_with_a_store_of_its_own_does_not_count_from_one) {
  RendezvousPoint b;
  {
    RendezvousPoint a;
    meet({{&a, 0}, {&b, 1}});
    meet({{&a, 0}, {&b, 1}});
  }
  RendezvousPoint restarted;
  ASSERT_TRUE(restarted.open(world(0, 2), "", soon()).is_ok());
  ASSERT_TRUE(b.open(world(1, 2), "", soon()).is_ok());
  const Epoch first = restarted.next_number(soon()).value();
  std::future<Epoch> joined = std::async(std::launch::async, [&] { return b.next_number(soon()).value(); });
  InitExchange exchange(*restarted.rendezvous().store, first, 0, 2, soon());
  std::vector<PeerInfo> all;
  ASSERT_TRUE(exchange.publish(PeerInfo{}).is_ok());
  EXPECT_FALSE(exchange.gather(all).is_ok());
  EXPECT_TRUE(exchange.is_superseded()) << "rank 1 has met under this number and says so";
  EXPECT_EQ(restarted.next_number(soon()).value(), 3);
  EXPECT_EQ(joined.get(), 3);
}

TEST_F(RendezvousPointTest, a_rank_that_comes_late_has_the_failed_exchange_first) {
  RendezvousPoint a, b;
  ASSERT_TRUE(a.open(world(0, 2), "", soon()).is_ok());
  a.refuse({Code::kInvalidArgument, "RUEDA_X is wrong."});
  EXPECT_EQ(a.next_number(soon()).value(), 2);  // it is ahead
  ASSERT_TRUE(b.open(world(1, 2), "", soon()).is_ok());
  ASSERT_EQ(b.next_number(soon()).value(), 1);
  InitExchange failed(*b.rendezvous().store, 1, 1, 2, soon());
  EXPECT_THAT(failed.interrupted().why, HasSubstr("rank 0: RUEDA_X is wrong."));
  EXPECT_EQ(b.next_number(soon()).value(), 2);
}

TEST_F(RendezvousPointTest, a_refusal_reaches_a_rank_0_that_comes_later) {
  RendezvousPoint a, b;
  std::thread refused([&] {
    ASSERT_TRUE(b.open(world(1, 2), "", soon()).is_ok());
    b.refuse({Code::kInvalidArgument, "RUEDA_X is wrong."});
  });
  ASSERT_TRUE(a.open(world(0, 2), "", soon()).is_ok());
  refused.join();  // it has given up before rank 0 has announced an exchange
  InitExchange exchange(*a.rendezvous().store, a.next_number(soon()).value(), 0, 2, soon());
  EXPECT_THAT(exchange.interrupted().why, HasSubstr("rank 1: RUEDA_X is wrong."));
  RendezvousPoint* const both[] = {&a, &b};
  EXPECT_EQ(meet({{both[0], 0}, {both[1], 1}}), (std::vector<Epoch>{2, 2}));
}

TEST_F(RendezvousPointTest, a_rank_0_that_its_launcher_saw_end_is_not_waited_for) {
  RendezvousPoint a, b;
  ASSERT_TRUE(a.open(world(0, 2), "", soon()).is_ok());
  const store::EndedRank ended{.size = 2, .rank = 0, .how = "rank 0 on a exited with code 1"};
  ASSERT_TRUE(a.rendezvous().store->set(store::kEndedKey, format_ended(ended), soon()).is_ok());
  ASSERT_TRUE(b.open(world(1, 2), "", soon()).is_ok());
  EXPECT_THAT(b.next_number(Deadline::after(300 * kSecond)).status().why,
              HasSubstr("rank 0 on a exited with code 1, so it does not take part in this init; "));
}

TEST_F(RendezvousPointTest, a_rank_that_was_refused_and_ended_is_quoted_where_rank_0_has_not_come) {
  RendezvousPoint a, b, c;
  ASSERT_TRUE(a.open(world(0, 3), "", soon()).is_ok());
  ASSERT_TRUE(c.open(world(2, 3), "", soon()).is_ok());
  c.refuse({Code::kInvalidArgument, "RUEDA_X is wrong."});
  const store::EndedRank ended{.size = 3, .rank = 2, .how = "rank 2 on a exited with code 1"};
  ASSERT_TRUE(c.rendezvous().store->set(store::kEndedKey, format_ended(ended), soon()).is_ok());
  ASSERT_TRUE(b.open(world(1, 3), "", soon()).is_ok());
  EXPECT_EQ(b.next_number(Deadline::after(300 * kSecond)).status().why,
            "another rank could not initialize: rank 2: RUEDA_X is wrong.");
}

TEST_F(RendezvousPointTest, an_interrupted_rank_tells_a_rank_0_that_comes_later) {
  RendezvousPoint rank0, rank1;
  ASSERT_TRUE(rank0.open(world(0, 2), "", soon()).is_ok());
  ASSERT_TRUE(rank1.open(world(1, 2), "", soon()).is_ok());
  rank1.watch([] { return true; });
  const Status interrupted = rank1.next_number(soon()).status();
  EXPECT_EQ(interrupted.why, store::interrupted_status().why);
  rank1.refuse(interrupted);
  InitExchange exchange(*rank0.rendezvous().store, rank0.next_number(soon()).value(), 0, 2, soon());
  std::vector<PeerInfo> all;
  ASSERT_TRUE(exchange.publish({}).is_ok());
  EXPECT_THAT(exchange.gather(all).why, HasSubstr("rank 1: a signal interrupted init"));
}

TEST(InitExchange, an_interruption_ends_the_wait_for_others) {
  const auto store = store::make_memory_store();
  InitExchange exchange(*store, 1, 0, 2, soon());
  exchange.watch([] { return true; });
  std::vector<PeerInfo> all;
  ASSERT_TRUE(exchange.publish({}).is_ok());
  EXPECT_EQ(exchange.gather(all).why, store::interrupted_status().why);
  EXPECT_FALSE(exchange.interrupted().is_ok()) << "which ends the wait for connections";
}

TEST(InitExchange, a_rank_that_told_its_failure_and_ended_is_quoted) {
  const auto store = store::make_memory_store();
  InitExchange zero(*store, 1, 0, 2, Deadline::after(300 * kSecond)), one(*store, 1, 1, 2, soon());
  ASSERT_TRUE(zero.publish(PeerInfo{}).is_ok());
  EXPECT_EQ(one.settle({Code::kUnavailable, "no memory."}).why, "no memory.");
  const store::EndedRank ended{.size = 2, .rank = 1, .how = "rank 1 on b exited with code 1"};
  ASSERT_TRUE(store->set(store::kEndedKey, format_ended(ended), soon()).is_ok());
  std::vector<PeerInfo> all;
  EXPECT_EQ(zero.gather(all).why, "another rank could not initialize: rank 1: no memory.");
}

// No channel is closed and no launcher tells of it, as long as this rank waits for rank 0 to connect.
TEST(InitExchange, rank_0_that_ends_with_its_store_is_named_while_ranks_connect) {
  const Secret secret = make_secret().value();
  std::unique_ptr<store::StoreServer> server =
      store::serve_store("127.0.0.1", 0, "job", secret, "1.0").value();
  const std::unique_ptr<store::Store> store =
      store::open_tcp_store("127.0.0.1", server->port(), "job", secret, "1.0", soon()).value();
  InitExchange exchange(*store, 1, 1, 2, soon());
  exchange.depend_on_rank_0();
  EXPECT_TRUE(exchange.interrupted().is_ok());
  server.reset();
  const Deadline deadline = Deadline::after(60 * kSecond);
  Status found;
  while (found.is_ok() && !deadline.is_past()) {
    found = exchange.interrupted();
    sleep_for(10 * kMillisecond);
  }
  EXPECT_EQ(found.code, Code::kPeerLost);
  EXPECT_THAT(found.why, HasSubstr("rank 0, which serves the store of this init, has ended"));
  EXPECT_EQ(exchange.settle(found).why, found.why);
}

TEST_F(RendezvousPointTest, rank_0_that_ends_is_named_by_those_who_share_a_folder_with_it) {
  RendezvousPoint b;
  std::string run_dir;
  {
    RendezvousPoint a;
    meet({{&a, 0}, {&b, 1}});
    run_dir = b.rendezvous().run_dir;
    InitExchange exchange(*b.rendezvous().store, 1, 1, 2, soon());
    exchange.watch_rank_0([&] { return store::is_run_over(run_dir); });
    EXPECT_TRUE(exchange.interrupted().is_ok());
  }
  InitExchange exchange(*b.rendezvous().store, 1, 1, 2, soon());
  exchange.watch_rank_0([&] { return store::is_run_over(run_dir); });
  EXPECT_THAT(exchange.interrupted().why,
              HasSubstr("rank 0, which serves the store of this init, has ended"));
}

TEST(InitExchange, every_rank_reports_the_failure_that_was_told_first) {
  const auto store = store::make_memory_store();
  InitExchange first(*store, 1, 2, 3, soon()), echo(*store, 1, 0, 3, soon()), late(*store, 1, 1, 3, soon());
  EXPECT_EQ(first.settle({Code::kUnavailable, "no memory."}).why, "no memory.");
  const std::string told = "another rank could not initialize: rank 2: no memory.";
  EXPECT_EQ(echo.settle({Code::kPeerLost, "rank 2 closed its connection."}).why, told);
  const Status noticed = late.interrupted();
  EXPECT_EQ(noticed.why, told);
  EXPECT_EQ(late.settle(noticed).why, told);
}

TEST(InitExchange, a_rank_whose_channel_was_closed_waits_for_the_cause_of_it) {
  const auto store = store::make_memory_store();
  InitExchange echo(*store, 1, 0, 2, soon()), cause(*store, 1, 1, 2, soon());
  std::future<Status> told = std::async(std::launch::async, [&] {
    return echo.settle({Code::kPeerLost, "rank 1 closed its connection."});
  });
  EXPECT_EQ(cause.settle({Code::kUnavailable, "no memory."}).why, "no memory.");
  EXPECT_EQ(told.get().why, "another rank could not initialize: rank 1: no memory.");
}

TEST(InitExchange, a_rank_that_its_launcher_saw_end_is_not_waited_for) {
  const auto store = store::make_memory_store();
  InitExchange exchange(*store, 1, 0, 3, Deadline::after(300 * kSecond));
  ASSERT_TRUE(exchange.publish(PeerInfo{}).is_ok());
  const store::EndedRank ended{.size = 3, .rank = 2, .how = "rank 2 on b (pid 7) exited with code 0"};
  ASSERT_TRUE(store->set(store::kEndedKey, format_ended(ended), soon()).is_ok());
  std::vector<PeerInfo> all;
  const Status status = exchange.gather(all);
  EXPECT_THAT(status.why,
              HasSubstr("rank 2 on b (pid 7) exited with code 0, so it does not take part in this init; "));
  EXPECT_EQ(exchange.settle(status).why, status.why) << "the other ranks read the same";
}

TEST(InitExchange, a_rank_that_ends_after_it_has_taken_part_is_named_at_once) {
  const auto store = store::make_memory_store();
  InitExchange zero(*store, 1, 0, 3, Deadline::after(300 * kSecond)), one(*store, 1, 1, 3, soon());
  PeerInfo info;
  info.pid = 7;
  ASSERT_TRUE(zero.publish(PeerInfo{}).is_ok());
  ASSERT_TRUE(one.publish(info).is_ok());
  const store::EndedRank ended{.size = 3, .rank = 1, .how = "rank 1 on b (pid 7) ended", .pid = 7};
  ASSERT_TRUE(store->set(store::kEndedKey, format_ended(ended), soon()).is_ok());
  const std::string text = "rank 1 on b (pid 7) ended before all ranks were connected, so this init failed; ";
  std::vector<PeerInfo> all;
  EXPECT_THAT(zero.gather(all).why, HasSubstr(text)) << "while rank 2 has not come";
  InitExchange two(*store, 1, 2, 3, soon());
  ASSERT_TRUE(two.publish(PeerInfo{}).is_ok());
  all.clear();
  ASSERT_TRUE(zero.gather(all).is_ok());
  ASSERT_TRUE(two.gather(all).is_ok());
  EXPECT_THAT(two.interrupted().why, HasSubstr(text)) << "while it connects";
  InitExchange lost(*store, 1, 2, 3, soon());
  EXPECT_THAT(lost.settle({Code::kPeerLost, "rank 1 closed its connection."}).why, HasSubstr(text));
}

TEST(InitExchange, rank_0_gathers_and_the_others_read_one_table) {
  const auto store = store::make_memory_store();
  InitExchange zero(*store, 1, 0, 2, soon()), one(*store, 1, 1, 2, soon());
  PeerInfo info;
  info.pid = 7;
  ASSERT_TRUE(zero.publish(info).is_ok());
  info.pid = 8;
  ASSERT_TRUE(one.publish(info).is_ok());
  std::vector<PeerInfo> of_zero, of_one;
  ASSERT_TRUE(zero.gather(of_zero).is_ok());
  ASSERT_TRUE(one.gather(of_one).is_ok());
  ASSERT_EQ(of_zero.size(), 2u);
  EXPECT_EQ(of_zero[1].pid, 8);
  EXPECT_EQ(of_one, of_zero);
}

// As a relay writes it.
void give_together(store::Store& store, const std::map<Rank, int64_t>& pids) {
  store::Entries entries;
  for (const auto& [rank, pid] : pids) {
    PeerInfo info;
    info.pid = pid;
    const Bytes raw = encode(info);
    entries[rank] = {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }
  const std::string key = store::entries_key("init1/", entries.begin()->first);
  ASSERT_TRUE(store.set(key, store::encode_entries(entries), soon()).is_ok());
}

TEST(InitExchange, ranks_of_a_host_may_have_one_key) {
  const auto store = store::make_memory_store();
  InitExchange zero(*store, 1, 0, 5, soon());
  ASSERT_TRUE(zero.publish(PeerInfo{}).is_ok());
  give_together(*store, {{2, 12}, {4, 14}});
  give_together(*store, {{1, 11}, {3, 13}});
  std::vector<PeerInfo> all;
  ASSERT_TRUE(zero.gather(all).is_ok());
  for (Rank rank = 1; rank < 5; ++rank) EXPECT_EQ(all[static_cast<size_t>(rank)].pid, 10 + rank);
}

TEST(InitExchange, ranks_that_are_in_the_batch_of_another_one_are_not_missing) {
  const auto store = store::make_memory_store();
  InitExchange zero(*store, 1, 0, 6, Deadline::after(0)), five(*store, 1, 5, 6, Deadline::after(0));
  ASSERT_TRUE(zero.publish(PeerInfo{}).is_ok());
  give_together(*store, {{1, 11}, {3, 13}});
  std::vector<PeerInfo> all;
  for (InitExchange* const one : {&zero, &five})
    EXPECT_THAT(one->gather(all).why, HasSubstr("ranks 2, 4, 5 of 6 did not call init in time"));
}

TEST(InitExchange, a_rank_in_the_batch_of_another_one_that_ends_has_taken_part) {
  const auto store = store::make_memory_store();
  InitExchange zero(*store, 1, 0, 6, Deadline::after(300 * kSecond));
  ASSERT_TRUE(zero.publish(PeerInfo{}).is_ok());
  give_together(*store, {{1, 11}, {3, 13}});
  store::EndedRank ended{.size = 6, .rank = 3, .how = "rank 3 on b (pid 13) ended", .pid = 13};
  ASSERT_TRUE(store->set(store::kEndedKey, format_ended(ended), soon()).is_ok());
  std::vector<PeerInfo> all;
  EXPECT_THAT(zero.gather(all).why, HasSubstr("before all ranks were connected"));
  InitExchange other(*store, 1, 0, 6, soon());
  ended.pid = 99;
  ASSERT_TRUE(store->set(store::kEndedKey, format_ended(ended), soon()).is_ok());
  EXPECT_TRUE(other.interrupted().is_ok()) << "another process";
}

TEST(InitExchange, a_batch_of_another_release_is_refused) {
  const auto store = store::make_memory_store();
  InitExchange zero(*store, 1, 0, 2, soon());
  ASSERT_TRUE(store->set("init1/rank0", "what is this", soon()).is_ok());
  std::vector<PeerInfo> all;
  EXPECT_THAT(zero.gather(all).why, HasSubstr("all ranks must run the same release"));
}

TEST(InitExchange, rank_0_that_has_come_and_tells_nothing_is_named_by_those_who_wait_for_the_table) {
  const auto store = store::make_memory_store();
  InitExchange zero(*store, 1, 0, 2, soon()), one(*store, 1, 1, 2, Deadline::after(0));
  ASSERT_TRUE(zero.publish(PeerInfo{}).is_ok());
  ASSERT_TRUE(one.publish(PeerInfo{}).is_ok());
  std::vector<PeerInfo> all;
  const Status late = one.gather(all);
  EXPECT_EQ(late.code, Code::kTimeout);
  EXPECT_THAT(late.why, HasSubstr("look at rank 0"));
}

TEST(InitExchange, a_table_of_another_size_names_both_sizes) {
  const auto store = store::make_memory_store();
  InitExchange zero(*store, 1, 0, 1, soon()), one(*store, 1, 1, 2, soon());
  ASSERT_TRUE(zero.publish(PeerInfo{}).is_ok());
  ASSERT_TRUE(one.publish(PeerInfo{}).is_ok());
  std::vector<PeerInfo> all;
  ASSERT_TRUE(zero.gather(all).is_ok());
  all.clear();
  EXPECT_THAT(one.gather(all).why,
              HasSubstr("rank 0 was told that the world has 1 ranks, but this rank was told 2"));
}

TEST(InitExchange, another_process_than_the_one_that_took_part_may_end_and_so_may_one_of_another_world) {
  const auto store = store::make_memory_store();
  InitExchange zero(*store, 1, 0, 2, Deadline::after(kSecond)), one(*store, 1, 1, 2, soon());
  PeerInfo info;
  info.pid = 7;
  ASSERT_TRUE(one.publish(info).is_ok());
  for (const store::EndedRank& ended :
       {store::EndedRank{2, 1, "rank 1 ended", 6}, {3, 0, "rank 0 ended", 7}}) {
    ASSERT_TRUE(store->set(store::kEndedKey, format_ended(ended), soon()).is_ok());
    std::vector<PeerInfo> all;
    EXPECT_THAT(zero.gather(all).why, HasSubstr("rank 0 of 2 did not call init in time"));
  }
}

TEST(InitExchange, a_rank_lost_before_and_not_back_is_named_soon) {
  const auto store = store::make_memory_store();
  const LostRank lost{1, 2, "rank 1 (host b, pid 7)"};
  const Deadline deadline = Deadline::after(36'000 * kSecond);  // longer than any test may take
  InitExchange exchange(*store, 2, 0, 2, deadline, &lost, 300 * kMillisecond);
  std::vector<PeerInfo> all;
  ASSERT_TRUE(exchange.publish(PeerInfo{}).is_ok());
  const Status status = exchange.gather(all);
  EXPECT_THAT(status.why, HasSubstr("rank 1 (host b, pid 7) was lost before this init"));
}

}  // namespace
}  // namespace rueda::runtime::init_exchange_test
