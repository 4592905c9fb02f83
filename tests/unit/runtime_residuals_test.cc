#include "rueda/runtime/residuals.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace rueda::runtime {
namespace {

Batch batch_of(const std::string& name, int64_t count, int32_t set = 0, uint16_t numbered_at = 0) {
  Batch batch;
  auto bucket = std::make_shared<control::Bucket>();
  bucket->process_set = set;
  bucket->entries.push_back({.name = name, .shape = {count}, .rows = {}, .numbered_at = numbered_at});
  batch.bucket = std::move(bucket);
  batch.segments.push_back({.count = count});
  batch.tensors.emplace_back();
  return batch;
}

backend::Segment attached(ResidualStore& store, Batch batch) {
  EXPECT_TRUE(store.attach(batch).is_ok());
  return batch.segments[0];
}

TEST(ResidualStore, FactorsThatWouldLoseEveryNumberAreRefusedTogether) {
  ResidualStore store;
  EXPECT_FALSE(store.rescale(1e-60));
  EXPECT_TRUE(store.rescale(1e-40));
  EXPECT_FALSE(store.rescale(1e-20));
  EXPECT_TRUE(store.rescale(1e80));
  EXPECT_FALSE(store.rescale(1e20));
}

TEST(ResidualStore, KeepsAResidualByProcessSetAndName) {
  ResidualStore store;
  const backend::Segment first = attached(store, batch_of("grad", 1000));
  first.residual.sent[999] = 2;
  first.residual.owned[1] = 3;
  const backend::Segment again = attached(store, batch_of("grad", 1000));
  EXPECT_EQ(again.residual.sent[999], 2);
  EXPECT_EQ(again.residual.owned[1], 3);
  EXPECT_EQ(attached(store, batch_of("grad", 1000, 1)).residual.sent[999], 0);
  EXPECT_EQ(attached(store, batch_of("other", 1000)).residual.sent[999], 0);
}

TEST(ResidualStore, ANewSizeBeginsAnew) {
  ResidualStore store;
  attached(store, batch_of("grad", 1000)).residual.sent[0] = 2;
  EXPECT_EQ(attached(store, batch_of("grad", 1001)).residual.sent[0], 0);
}

TEST(ResidualStore, ForgetsARemovedSetAndNoOther) {
  ResidualStore store;
  for (const int32_t set : {0, 1, 2}) attached(store, batch_of("grad", 1024, set)).residual.sent[0] = 2;
  EXPECT_EQ(store.bytes(), 3 * 2 * 4096);
  store.drop(1);
  EXPECT_EQ(store.bytes(), 2 * 2 * 4096);
  EXPECT_EQ(attached(store, batch_of("grad", 1024, 0)).residual.sent[0], 2);
  EXPECT_EQ(attached(store, batch_of("grad", 1024, 1)).residual.sent[0], 0);
  EXPECT_EQ(attached(store, batch_of("grad", 1024, 2)).residual.sent[0], 2);
}

const ResidualStore::Wanted kEverything{.process_set = 0, .names = {}, .is_all = true};

// Everything lies as it did, except for the sets that a test moves.
Placements placed(uint64_t of_the_world, uint64_t of_others = 1) {
  return [=](int32_t set) { return set == 0 ? of_the_world : of_others; };
}

TEST(ResidualStore, WhatWasSavedOfEverythingComesBackToTheBitAndNothingElseStays) {
  ResidualStore store;
  const backend::Segment grad = attached(store, batch_of("grad", 1000));
  const backend::Segment other = attached(store, batch_of("grad", 3000, 1));
  grad.residual.sent[999] = -0.0F;
  grad.residual.owned[300] = 1e-40F;
  other.residual.sent[2999] = std::numeric_limits<float>::quiet_NaN();
  const Bytes saved = store.save(kEverything, placed(1));
  grad.residual.sent[999] = 5;
  grad.residual.sent[0] = 5;
  other.residual.sent[2999] = 5;
  attached(store, batch_of("new", 1000)).residual.sent[7] = 5;
  const auto done = store.restore(saved, placed(1));
  ASSERT_TRUE(done.is_ok()) << done.status().why;
  EXPECT_EQ(done.value().tensors, 2);
  EXPECT_EQ(std::bit_cast<uint32_t>(grad.residual.sent[999]), 0x80000000U) << "plans hold this memory";
  EXPECT_EQ(grad.residual.sent[0], 0);
  EXPECT_EQ(grad.residual.owned[300], 1e-40F);
  EXPECT_TRUE(std::isnan(other.residual.sent[2999]));
  EXPECT_EQ(attached(store, batch_of("new", 1000)).residual.sent[7], 0);

  ResidualStore of_another_epoch;
  ASSERT_TRUE(of_another_epoch.restore(saved, placed(1)).is_ok());
  EXPECT_EQ(of_another_epoch.save(kEverything, placed(1)),
            store.restore(saved, placed(1)).is_ok() ? saved : Bytes());
}

TEST(ResidualStore, WhatWasSavedOfSomeTensorsLeavesOthersAlone) {
  ResidualStore store;
  attached(store, batch_of("a", 1000)).residual.sent[1] = 1;
  attached(store, batch_of("b", 1000)).residual.sent[1] = 2;
  const Bytes saved = store.save({.process_set = 0, .names = {"a", "none"}, .is_all = false}, placed(1));
  attached(store, batch_of("a", 1000)).residual.sent[1] = 3;
  attached(store, batch_of("b", 1000)).residual.sent[1] = 4;
  attached(store, batch_of("none", 1000)).residual.sent[1] = 5;
  ASSERT_TRUE(store.restore(saved, placed(1)).is_ok());
  EXPECT_EQ(attached(store, batch_of("a", 1000)).residual.sent[1], 1);
  EXPECT_EQ(attached(store, batch_of("b", 1000)).residual.sent[1], 4);
  EXPECT_EQ(attached(store, batch_of("none", 1000)).residual.sent[1], 0) << "it had none";
}

TEST(ResidualStore, ResidualsOfAnotherPlacementAreDroppedAndCounted) {
  ResidualStore store;
  attached(store, batch_of("a", 1000)).residual.sent[1] = 1;
  attached(store, batch_of("a", 1000, 1)).residual.sent[1] = 1;
  const Bytes saved = store.save(kEverything, placed(1));
  const auto done = store.restore(saved, placed(2));
  ASSERT_TRUE(done.is_ok());
  EXPECT_EQ(done.value().dropped, 1);
  EXPECT_EQ(done.value().tensors, 1);
  EXPECT_EQ(attached(store, batch_of("a", 1000)).residual.sent[1], 0);
  EXPECT_EQ(attached(store, batch_of("a", 1000, 1)).residual.sent[1], 1);
  EXPECT_EQ(store.restore(saved, placed(0, 0)).value().dropped, 2) << "there are no such sets";
}

TEST(ResidualStore, AScaleThatNoCallHasAppliedIsSavedToo) {
  ResidualStore store;
  attached(store, batch_of("a", 1000)).residual.sent[1] = 1;
  store.rescale(0.5);
  const Bytes saved = store.save(kEverything, placed(1));
  ResidualStore other;
  other.rescale(8);
  ASSERT_TRUE(other.restore(saved, placed(1)).is_ok());
  EXPECT_EQ(attached(other, batch_of("a", 1000)).residual.sent[1], 0.5F);
}

TEST(ResidualStore, BytesThatAreCutOffOrChangedAreRefusedAndChangeNothing) {
  ResidualStore store;
  attached(store, batch_of("a", 1000)).residual.sent[1] = 1;
  Bytes saved = store.save(kEverything, placed(1));
  for (size_t size = 0; size < saved.size(); ++size)
    EXPECT_FALSE(store.restore(std::span(saved).first(size), placed(1)).is_ok()) << size;
  saved.push_back(std::byte{0});
  EXPECT_FALSE(store.restore(saved, placed(1)).is_ok());
  saved.pop_back();
  saved[0] = std::byte{1};
  EXPECT_FALSE(store.restore(saved, placed(1)).is_ok());
  EXPECT_EQ(attached(store, batch_of("a", 1000)).residual.sent[1], 1);
}

TEST(ResidualStore, AResidualOfAnotherSizeIsDroppedAndThePlansMemoryStays) {
  ResidualStore saved_of;
  attached(saved_of, batch_of("a", 5000)).residual.sent[4999] = 1;
  const Bytes saved = saved_of.save(kEverything, placed(1));
  ResidualStore store;
  const backend::Segment planned = attached(store, batch_of("a", 1000));
  planned.residual.sent[1] = 1;
  const auto done = store.restore(saved, placed(1));
  ASSERT_TRUE(done.is_ok());
  EXPECT_EQ(done.value().dropped, 1);
  EXPECT_EQ(planned.residual.sent[1], 0);
  EXPECT_EQ(attached(store, batch_of("a", 1000)).residual.sent, planned.residual.sent);
}

TEST(ResidualStore, WithoutMemoryItSaysSoAndTheNextCallTriesAgain) {
  ResidualStore store;
  Batch batch = batch_of("a", int64_t{1} << 44);
  const Status refused = store.attach(batch);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.why.find("tensor a"), std::string::npos) << refused.why;
  EXPECT_EQ(store.bytes(), 0);
  EXPECT_FALSE(store.attach(batch).is_ok());
  EXPECT_EQ(attached(store, batch_of("a", 1000)).residual.sent[1], 0);
}

TEST(ResidualStore, NamesWithARunningNumberHaveNoResidualButOneOwner) {
  ResidualStore store;
  const backend::Segment first = attached(store, batch_of("allreduce.noname.7", 1000, 0, 17));
  const backend::Segment second = attached(store, batch_of("allreduce.noname.8", 1000, 0, 17));
  EXPECT_EQ(first.residual.sent, nullptr);
  EXPECT_EQ(first.name_hash, second.name_hash);
  EXPECT_EQ(store.bytes(), 0);
}

TEST(ResidualStore, AChangeOfScaleIsExactAndReachesWhatIsWrittenAfterIt) {
  ResidualStore store;
  float* const sent = attached(store, batch_of("grad", 1000)).residual.sent;
  store.rescale(0.5);
  sent[0] = 3;  // by a call that began before
  EXPECT_EQ(attached(store, batch_of("grad", 1000)).residual.sent[0], 1.5F);
  store.rescale(4);
  EXPECT_EQ(attached(store, batch_of("grad", 1000)).residual.sent[0], 6);
  EXPECT_EQ(attached(store, batch_of("grad", 1000)).residual.sent[0], 6);
}

}  // namespace
}  // namespace rueda::runtime
