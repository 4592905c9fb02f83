// The worked example at the top of init_exchange.h.
#include <gtest/gtest.h>

#include <future>

#include "rueda/runtime/init_exchange.h"
#include "runtime_store_folder.h"

namespace rueda::runtime::examples_test {
namespace {

class InitExchangeExample : public StoreFolder {
 protected:
  [[nodiscard]] Epoch next(RendezvousPoint& point, Rank rank) const {
    return StoreFolder::next(point, rank, 2);
  }
  static std::string value(RendezvousPoint& point, std::string_view key) {
    const Result<std::string> text = point.rendezvous().store->try_get(key, soon());
    return text.is_ok() ? text.value() : "(none)";
  }
};

TEST_F(InitExchangeExample, two_ranks_meet_twice_and_then_with_a_new_process) {
  RendezvousPoint zero;
  {
    RendezvousPoint one;
    for (const Epoch number : {1, 2}) {
      std::future<Epoch> of_one = std::async(std::launch::async, [&] { return next(one, 1); });
      EXPECT_EQ(next(zero, 0), number);
      EXPECT_EQ(of_one.get(), number);
      EXPECT_EQ(value(zero, "exchange"), std::to_string(number) + " open");
      InitExchange exchange(*zero.rendezvous().store, number, 0, 2, soon());
      InitExchange other(*one.rendezvous().store, number, 1, 2, soon());
      ASSERT_TRUE(exchange.publish(PeerInfo{}).is_ok());
      ASSERT_TRUE(other.publish(PeerInfo{}).is_ok());
      std::vector<PeerInfo> all;
      ASSERT_TRUE(exchange.gather(all).is_ok());
      EXPECT_EQ(all.size(), 2u);
      EXPECT_NE(value(zero, "init" + std::to_string(number) + "/rank1"), "(none)");
      zero.close_exchange();
      EXPECT_EQ(value(zero, "exchange"), std::to_string(number) + " closed");
    }
    EXPECT_EQ(value(zero, "init1/rank1"), "(none)") << "closing exchange 2 removes the keys of exchange 1";
  }
  RendezvousPoint restarted;
  std::future<Epoch> of_restarted = std::async(std::launch::async, [&] { return next(restarted, 1); });
  EXPECT_EQ(next(zero, 0), 3);
  EXPECT_EQ(of_restarted.get(), 3);
}

TEST_F(InitExchangeExample, the_first_failure_is_what_all_ranks_report) {
  RendezvousPoint zero, one;
  std::future<Epoch> of_one = std::async(std::launch::async, [&] { return next(one, 1); });
  ASSERT_EQ(next(zero, 0), 1);
  ASSERT_EQ(of_one.get(), 1);
  InitExchange exchange(*zero.rendezvous().store, 1, 0, 2, soon());
  InitExchange other(*one.rendezvous().store, 1, 1, 2, soon());
  EXPECT_FALSE(other.settle({Code::kInvalidArgument, "RUEDA_X is wrong."}).is_ok());
  EXPECT_EQ(value(zero, "init1/failed"), "rank 1: RUEDA_X is wrong.");
  EXPECT_EQ(exchange.interrupted().why, "another rank could not initialize: rank 1: RUEDA_X is wrong.");
}

TEST_F(InitExchangeExample, a_rank_in_an_older_exchange_is_told_the_number_of_the_newer_one) {
  RendezvousPoint zero, one;
  std::future<Epoch> of_one = std::async(std::launch::async, [&] { return next(one, 1); });
  ASSERT_EQ(next(zero, 0), 1);
  ASSERT_EQ(of_one.get(), 1);
  zero.close_exchange();
  ASSERT_EQ(zero.next_number(soon()).value(), 2);
  InitExchange old(*one.rendezvous().store, 1, 1, 2, soon());
  EXPECT_EQ(old.interrupted().why, "other ranks of this job have begun init exchange 2 without this one.");
  EXPECT_TRUE(old.is_superseded());
}

}  // namespace
}  // namespace rueda::runtime::examples_test
