#include "rueda/backend/wire_layout.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace rueda::backend {
namespace {

struct Owned {
  Rank owner;
  int64_t within;
  bool operator==(const Owned&) const = default;
};

// [name] who owns each block, as (owner, first element).
std::map<uint64_t, std::vector<Owned>> owners_of(const std::vector<Segment>& bucket, Rank members) {
  WireLayout layout;
  layout.assign(bucket, members);
  std::map<uint64_t, std::vector<Owned>> owners;
  int64_t begin = 0;
  for (Rank owner = 0; owner < members; ++owner) {
    const int64_t end = begin + layout.owned()[static_cast<size_t>(owner)];
    layout.for_range(begin, end, [&](const WireLayout::Piece& piece, int64_t offset, int64_t size, int64_t) {
      for (int64_t at = 0; at < size; at += kWireBlock)
        owners[bucket[piece.segment].name_hash].push_back({owner, piece.within + offset + at});
    });
    begin = end;
  }
  EXPECT_EQ(begin, layout.count());
  for (auto& [name, list] : owners) std::ranges::sort(list, {}, &Owned::within);
  return owners;
}

std::vector<Segment> tensors(const std::vector<int64_t>& counts) {
  std::vector<Segment> all;
  for (const int64_t count : counts)
    all.push_back({.count = count, .name_hash = 1000003 * (all.size() + 17)});
  return all;
}

TEST(WireLayout, TheOwnerOfABlockDependsOnItsTensorAloneAndNotOnTheBucket) {
  std::mt19937 random(1);
  std::vector<Segment> all = tensors({1, 256, 257, 1000, 5000, 100000});
  for (const Rank members : {2, 3, 4, 7}) {
    const auto together = owners_of(all, members);
    for (int round = 0; round < 20; ++round) {
      std::ranges::shuffle(all, random);
      const std::vector<Segment> bucket(all.begin(), all.begin() + 1 + round % 6);
      for (const auto& [name, owners] : owners_of(bucket, members)) EXPECT_EQ(owners, together.at(name));
    }
  }
}

TEST(WireLayout, EveryElementIsCoveredOnceAndBlocksBeginAnewAtEachTensor) {
  for (const Rank members : {1, 2, 5, 16}) {
    const std::vector<Segment> bucket = tensors({0, 1, 255, 256, 257, 70000});
    for (const auto& [name, owners] : owners_of(bucket, members)) {
      const auto tensor = std::ranges::find(bucket, name, &Segment::name_hash);
      ASSERT_EQ(static_cast<int64_t>(owners.size()), (tensor->count + kWireBlock - 1) / kWireBlock);
      for (size_t i = 0; i < owners.size(); ++i)
        EXPECT_EQ(owners[i].within, static_cast<int64_t>(i) * kWireBlock);
    }
  }
}

TEST(WireLayout, MembersOwnNearlyEqualSharesOfManyTensors) {
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < 200; ++i) counts.push_back(1024 + 37 * i);
  WireLayout layout;
  layout.assign(tensors(counts), 4);
  for (const int64_t owned : layout.owned())
    EXPECT_NEAR(static_cast<double>(owned), static_cast<double>(layout.count()) / 4,
                static_cast<double>(layout.count()) / 50);
}

TEST(WireLayout, ARangeNamesTheElementsOfTheTensorAndWhatFillsItsLastBlock) {
  WireLayout layout;
  layout.assign(tensors({300}), 1);
  int64_t run = 0, of_tensor = 0;
  layout.for_range(256, 512, [&](const WireLayout::Piece&, int64_t offset, int64_t size, int64_t real) {
    EXPECT_EQ(offset, 256);
    run += size;
    of_tensor += real;
  });
  EXPECT_EQ(run, 256);
  EXPECT_EQ(of_tensor, 44);
}

}  // namespace
}  // namespace rueda::backend
