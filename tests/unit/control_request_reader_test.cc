// Equal messages of several ranks are read once, and mean what they mean when each of them is read.
#include <gtest/gtest.h>

#include "rueda/control/request_reader.h"
#include "rueda/control/rounds.h"

namespace rueda::control::request_reader_test {
namespace {

std::vector<Request> requests(int tensors, int64_t rows) {
  std::vector<Request> all;
  for (int i = 0; i < tensors; ++i) {
    TensorRequest request;
    request.name = "tensor" + std::to_string(i);
    request.shape = {rows, 3};
    all.emplace_back(std::move(request));
  }
  return all;
}

TEST(RequestReader, a_message_that_equals_the_one_before_it_is_read_once) {
  RequestReader reader;
  const Bytes one = encode(7, requests(3, 4)), other = encode(7, requests(3, 5));
  const SharedSubmitted first = reader.read(one).value();
  EXPECT_EQ(*first.requests, requests(3, 4));
  EXPECT_EQ(first.plans_begun, 7);
  EXPECT_EQ(reader.read(Bytes(one)).value().requests, first.requests);
  EXPECT_EQ(*reader.read(other).value().requests, requests(3, 5));
  EXPECT_EQ(*reader.read(one).value().requests, requests(3, 4));
}

TEST(RequestReader, what_cannot_be_read_is_refused_again_and_harms_nothing) {
  RequestReader reader;
  const Bytes good = encode(0, requests(2, 1));
  const Bytes bad(good.begin(), good.end() - 1);
  ASSERT_TRUE(reader.read(good).is_ok());
  EXPECT_FALSE(reader.read(bad).is_ok());
  EXPECT_FALSE(reader.read(bad).is_ok());
  EXPECT_FALSE(reader.read({}).is_ok());
  EXPECT_EQ(*reader.read(good).value().requests, requests(2, 1));
}

TEST(RequestReader, a_message_that_is_large_is_not_kept) {
  RequestReader reader;
  std::vector<Request> many = requests(1, 1);
  for (int i = 0; i < 8'000; ++i) many.push_back(requests(1, i).front());
  const Bytes payload = encode(0, many);
  ASSERT_GT(payload.size(), RequestReader::kMaxKept);
  const SharedSubmitted first = reader.read(payload).value();
  EXPECT_NE(reader.read(payload).value().requests, first.requests);
}

// 16 ranks, of which three ask for something else: the answers are those of requests that each rank has
// alone.
TEST(RequestReader, the_coordinator_decides_the_same_whether_requests_are_shared_or_not) {
  constexpr Rank kRanks = 16;
  CoordinatorOptions options;
  options.world_size = kRanks;
  Coordinator shared(options), alone(options);
  RequestReader reader;
  for (int step = 0; step < 3; ++step) {
    for (Rank rank = 0; rank < kRanks; ++rank) {
      std::vector<Request> mine = requests(5, 4);
      if (rank == 3 + step) std::get<TensorRequest>(mine[1]).shape = {9, 9};
      if (rank == 7) std::swap(mine[0], mine[4]);
      if (rank == 11) {  // refused by its own check
        std::get<TensorRequest>(mine[2]).what = Collective::kBroadcast;
        std::get<TensorRequest>(mine[2]).root = 99;
      }
      shared.submit(rank, reader.read(encode(0, mine)).value().requests, step, nullptr);
      alone.submit(rank, mine, step, nullptr);
    }
    const Bytes of_shared = encode(shared.take_ready());
    EXPECT_EQ(of_shared, encode(alone.take_ready()));
    EXPECT_GT(of_shared.size(), 100u);
  }
}

}  // namespace
}  // namespace rueda::control::request_reader_test
