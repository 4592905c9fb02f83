// One queue, several backends: what overlaps, what waits for what, and what becomes of failures.
#include "runtime_dispatcher_fixture.h"

namespace rueda::runtime::dispatcher_test::runtime_dispatcher_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(OneRank, batches_of_different_backends_overlap_and_each_backend_keeps_the_order) {
  const int64_t first = run("f1", 1);
  run("f2", 2);
  const int64_t ints = run("i1", 11, DType::kInt32);
  run("f3", 3);
  run("i2", 12, DType::kInt32);
  settle();
  EXPECT_THAT(floats_->started, ElementsAre(1));
  EXPECT_THAT(ints_->started, ElementsAre(11)) << "it need not wait for the other backend";
  EXPECT_EQ(dispatcher_->order().backlog(), 5u);
  ints_->finish();
  settle();
  EXPECT_EQ(operations_.poll(ints), 1);
  EXPECT_EQ(operations_.poll(first), 0);
  EXPECT_THAT(ints_->started, ElementsAre(11, 12));
  for (int i = 0; i < 3; ++i) {
    floats_->finish();
    settle();
  }
  EXPECT_THAT(floats_->started, ElementsAre(1, 2, 3));
  ints_->finish();
  settle();
  EXPECT_TRUE(dispatcher_->is_idle());
}

TEST_F(OneRankWithRoom, as_many_batches_run_as_the_backend_takes_and_may_end_in_any_order) {
  const int64_t first = run("f1", 1), second = run("f2", 2), third = run("f3", 3);
  settle();
  EXPECT_THAT(floats_->started, ElementsAre(1, 2));
  floats_->finish(Status::ok(), 1);
  settle();
  EXPECT_EQ(operations_.poll(first), 0);
  EXPECT_EQ(operations_.poll(second), 1);
  EXPECT_THAT(floats_->started, ElementsAre(1, 2, 3));
  floats_->finish();
  floats_->finish();
  settle();
  EXPECT_EQ(operations_.poll(first), 1);
  EXPECT_EQ(operations_.poll(third), 1);
}

TEST_F(OneRank, a_barrier_and_a_notice_wait_for_all_before_them_and_hold_up_all_behind) {
  run("f1", 1);
  const control::SetAdded added{.names = {}, .id = 3, .ranks = {0}};
  dispatcher_->enqueue(added);
  run("i1", 11, DType::kInt32);
  settle();
  EXPECT_THAT(ints_->started, IsEmpty());
  EXPECT_EQ(groups_.find(3), nullptr);
  floats_->finish();
  settle();
  EXPECT_NE(groups_.find(3), nullptr);
  EXPECT_THAT(ints_->started, ElementsAre(11));
}

TEST_F(OneRank, fused_tensors_go_to_the_backend_as_they_lie) {
  submit("a", 1, DType::kFloat32);
  submit("b", 2, DType::kFloat32);
  dispatcher_->enqueue(bucket({{"a", 1}, {"b", 2}}, DType::kFloat32));
  settle();
  EXPECT_THAT(floats_->segments, ElementsAre(2u));
}

TEST_F(OneRank, fused_tensors_keep_the_event_after_which_each_may_be_read) {
  floats_->takes_devices = true;
  int first = 0, second = 0;  // their addresses stand for events
  submit("a", 1, DType::kFloat32, {.kind = MemoryKind::kDevice, .device = 0, .ready = &first});
  submit("b", 2, DType::kFloat32, {.kind = MemoryKind::kDevice, .device = 0, .ready = &second});
  submit("c", 3, DType::kFloat32, {.kind = MemoryKind::kDevice, .device = 0});
  dispatcher_->enqueue(bucket({{"a", 1}, {"b", 2}, {"c", 3}}, DType::kFloat32));
  settle();
  EXPECT_THAT(floats_->segments, ElementsAre(3u));
  EXPECT_THAT(floats_->events, ElementsAre(&first, &second, nullptr));
}

TEST_F(OneRank, memory_that_no_backend_takes_fails_its_operation_alone) {
  const int64_t device = submit("d", 1, DType::kFloat32, {.kind = MemoryKind::kDevice, .device = 0});
  dispatcher_->enqueue(bucket({{"d", 1}}, DType::kFloat32));
  const int64_t host = run("f1", 1);
  settle();
  EXPECT_EQ(operations_.poll(device), 1);
  EXPECT_EQ(operations_.find(device)->status.code, Code::kUnsupported);
  EXPECT_TRUE(dispatcher_->failure().is_ok());
  floats_->finish();
  settle();
  EXPECT_TRUE(operations_.find(host)->status.is_ok());
}

TEST_F(OneRank, what_fails_here_alone_ends_the_epoch_and_starts_nothing_more) {
  const int64_t first = run("f1", 1);
  run("f2", 2);
  settle();
  floats_->finish({Code::kPeerLost, "rank 1 closed its connection"});
  settle();
  EXPECT_EQ(dispatcher_->failure().code, Code::kPeerLost);
  EXPECT_EQ(operations_.poll(first), 0) << "it ends with the epoch";
  EXPECT_THAT(floats_->started, ElementsAre(1));
}

TEST_F(OneRank, a_planned_batch_is_cancelled_and_its_operation_stays_open) {
  const int64_t handle = submit("f1", 1, DType::kFloat32);
  plan("f1", 1, 7);
  settle();
  EXPECT_THAT(dispatcher_->pause(), ElementsAre(control::BucketUnderWay{.bucket = 7, .sent = {1, 1}}));
  const std::vector<int32_t> arrivals{0, 4};
  dispatcher_->cancel(7, arrivals);
  settle();
  EXPECT_EQ(floats_->cancelled, arrivals);
  EXPECT_EQ(operations_.poll(handle), 0);
  EXPECT_TRUE(dispatcher_->is_idle());
}

TEST_F(OneRankWithRoom, planned_batches_overlap_and_each_is_cancelled_by_its_number) {
  const int64_t first = submit("f1", 1, DType::kFloat32), second = submit("f2", 2, DType::kFloat32);
  const int64_t third = submit("f3", 3, DType::kFloat32);
  EXPECT_TRUE(dispatcher_->has_room_for(0));
  plan("f1", 1, 0);
  settle();
  EXPECT_TRUE(dispatcher_->has_room_for(1));
  plan("f2", 2, 1);
  settle();
  EXPECT_THAT(floats_->orders, ElementsAre(0u, 1u));
  EXPECT_FALSE(dispatcher_->has_room_for(2));
  plan("f3", 3, 2);  // waits in the queue
  settle();
  EXPECT_EQ(dispatcher_->pause().size(), 2u);
  dispatcher_->cancel(2, std::vector<int32_t>{0, 0});
  dispatcher_->cancel(1, std::vector<int32_t>{0, 3});
  dispatcher_->resume();
  settle();
  EXPECT_THAT(floats_->cancelled, ElementsAre(0, 3));
  EXPECT_EQ(dispatcher_->order().backlog(), 1u) << "the first goes on";
  floats_->finish();
  settle();
  EXPECT_EQ(operations_.poll(first), 1);
  EXPECT_EQ(operations_.poll(second), 0);
  EXPECT_EQ(operations_.poll(third), 0);
  EXPECT_TRUE(dispatcher_->is_idle());
}

TEST_F(OneRankWithRoom, nothing_starts_while_a_bucket_that_was_cancelled_still_uses_its_tensors) {
  submit("f1", 1, DType::kFloat32);
  plan("f1", 1, 0);
  settle();
  floats_->ends_at_once = false;
  dispatcher_->pause();
  dispatcher_->cancel(0, std::vector<int32_t>{0, 0});
  dispatcher_->resume();
  dispatcher_->enqueue(bucket({{"f1", 1}}, DType::kFloat32));  // negotiated after all
  settle();
  EXPECT_THAT(floats_->started, ElementsAre(1));
  floats_->finish();
  settle();
  EXPECT_THAT(floats_->started, ElementsAre(1, 1));
}

TEST_F(OneRank, no_bucket_starts_between_a_pause_and_what_follows_it) {
  submit("f1", 1, DType::kFloat32);
  const int64_t second = submit("f2", 2, DType::kFloat32);
  plan("f1", 1, 0);
  plan("f2", 2, 1);
  settle();
  EXPECT_EQ(dispatcher_->pause().size(), 1u) << "the other has sent nothing";
  floats_->finish();
  settle();
  EXPECT_THAT(floats_->started, ElementsAre(1));
  dispatcher_->resume();
  settle();
  EXPECT_THAT(floats_->started, ElementsAre(1, 2)) << "all ranks have come to it";
  floats_->finish();
  settle();
  EXPECT_EQ(operations_.poll(second), 1);
}

TEST_F(OneRankWithRoom, calls_are_counted_on_every_rank_alike_and_anew_with_each_generation) {
  run("f1", 1);
  control::Bucket elsewhere = bucket({{"other", 1}}, DType::kFloat32);
  elsewhere.process_set = 9;  // of other ranks
  dispatcher_->enqueue(elsewhere);
  run("f2", 2);
  settle();
  EXPECT_THAT(floats_->orders, ElementsAre(0u, 2u));
  floats_->finish();
  dispatcher_->set_generation(1);
  run("f3", 3);
  settle();
  EXPECT_THAT(floats_->orders, ElementsAre(0u, 2u, 0u));
}

TEST_F(OneRank, what_others_started_in_vain_is_discarded_without_tensors_of_this_rank) {
  const int64_t handle = submit("f1", 1, DType::kFloat32);
  dispatcher_->enqueue_discarded(bucket({{"f1", 1}}, DType::kFloat32), 3, {0, 4});
  settle();
  EXPECT_THAT(floats_->discarded, ElementsAre(0, 4));
  EXPECT_EQ(operations_.poll(handle), 0);
  EXPECT_TRUE(dispatcher_->is_idle());
}

}  // namespace
}  // namespace rueda::runtime::dispatcher_test::runtime_dispatcher_test
