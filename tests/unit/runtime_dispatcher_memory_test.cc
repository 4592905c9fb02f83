// Calls whose tensors share memory run one after the other, in the global order.
#include "runtime_dispatcher_fixture.h"

namespace rueda::runtime::dispatcher_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The backends of these tests would run both at once.
TEST_F(OneRankWithRoom, a_call_waits_for_the_one_before_it_that_uses_its_memory) {
  run("f1", 1);
  const int64_t shared = submit_again("f2", DType::kFloat32);
  dispatcher_->enqueue(bucket({{"f2", 1}}, DType::kFloat32));
  settle();
  EXPECT_THAT(floats_->started, ElementsAre(1));
  floats_->finish();
  settle();
  EXPECT_THAT(floats_->started, ElementsAre(1, 1));
  floats_->finish();
  settle();
  EXPECT_EQ(operations_.poll(shared), 1);
}

TEST_F(OneRank, what_shares_memory_overtakes_nothing_and_is_not_overtaken) {
  run("f1", 1);
  run("f2", 2);
  submit_again("i1", DType::kInt32);  // the memory of f2
  dispatcher_->enqueue(bucket({{"i1", 2}}, DType::kInt32));
  run("i2", 12, DType::kInt32);
  settle();
  EXPECT_THAT(ints_->started, IsEmpty()) << "f2 comes before i1 in the global order";
  floats_->finish();
  settle();
  EXPECT_THAT(floats_->started, ElementsAre(1, 2));
  EXPECT_THAT(ints_->started, IsEmpty());
  floats_->finish();
  settle();
  EXPECT_THAT(ints_->started, ElementsAre(2));
}

TEST_F(OneRank, the_global_order_decides_which_of_two_that_share_memory_runs_first) {
  submit("f1", 1, DType::kFloat32);
  submit_again("i1", DType::kInt32);
  dispatcher_->enqueue(bucket({{"i1", 1}}, DType::kInt32));
  dispatcher_->enqueue(bucket({{"f1", 1}}, DType::kFloat32));
  settle();
  EXPECT_THAT(ints_->started, ElementsAre(1));
  EXPECT_THAT(floats_->started, IsEmpty());
  ints_->finish();
  settle();
  EXPECT_THAT(floats_->started, ElementsAre(1));
}

TEST_F(OneRank, a_launched_call_is_polled_by_the_one_that_uses_its_memory) {
  run("f1", 1);
  settle();
  submit_again("i1", DType::kInt32);
  const auto event = std::make_shared<FakeEvent>();
  floats_->finish(Status::ok(), 0, event);
  dispatcher_->enqueue(bucket({{"i1", 1}}, DType::kInt32));
  settle();
  EXPECT_THAT(ints_->started, IsEmpty());
  EXPECT_TRUE(dispatcher_->waits_for_device());
  event->has_happened = true;
  settle();
  EXPECT_THAT(ints_->started, ElementsAre(1));
  EXPECT_FALSE(dispatcher_->waits_for_device());
}

TEST_F(OneRankWithRoom, a_batch_that_was_cancelled_uses_its_memory_no_longer) {
  submit("f1", 1, DType::kFloat32);
  plan("f1", 1, 0);
  settle();
  submit_again("i1", DType::kInt32);
  dispatcher_->pause();
  dispatcher_->cancel(0, {});
  dispatcher_->resume();
  dispatcher_->enqueue(bucket({{"i1", 1}}, DType::kInt32));
  dispatcher_->enqueue(bucket({{"f1", 1}}, DType::kFloat32));
  settle();
  EXPECT_THAT(ints_->started, ElementsAre(1)) << "f1 comes later in the order now";
  EXPECT_THAT(floats_->started, ElementsAre(1));
}

}  // namespace
}  // namespace rueda::runtime::dispatcher_test
