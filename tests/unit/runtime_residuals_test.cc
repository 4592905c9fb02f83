#include "rueda/runtime/residuals.h"

#include <gtest/gtest.h>

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
