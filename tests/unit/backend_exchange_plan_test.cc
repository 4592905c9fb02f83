// What members give one another, and where it lies in shared buffers.
#include "rueda/backend/local/exchange_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

namespace rueda::backend::exchange_plan_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Example {
  schedule::Spec spec;
  std::vector<std::vector<int64_t>> counts;  // [segment]
  size_t ranks = 3;

  [[nodiscard]] std::vector<Segment> segments() const {
    std::vector<Segment> made;
    for (const std::vector<int64_t>& each : counts) made.push_back({.count = each.front(), .counts = each});
    return made;
  }
  [[nodiscard]] ExchangePlan plan(Rank me) const {
    Group group;
    for (size_t i = 0; i < ranks; ++i) group.members.push_back(static_cast<Rank>(i));
    group.me = me;
    ExchangePlan plan;
    plan.assign(spec, group, segments());
    return plan;
  }
};

// counts: of each tensor; those of a broadcast have one element.
Example example(Collective what, std::vector<std::vector<int64_t>> counts, size_t ranks = 3,
                DType dtype = DType::kFloat32) {
  Example made{.spec = {.what = what, .dtype = dtype, .counts = {}, .scale = {}, .segment_counts = {}},
               .counts = std::move(counts),
               .ranks = ranks};
  for (const std::vector<int64_t>& each : made.counts) {
    if (what == Collective::kBroadcast) {
      made.spec.count += each.front();
      continue;
    }
    made.spec.counts.resize(each.size(), 0);
    for (size_t i = 0; i < each.size(); ++i) made.spec.counts[i] += each[i];
  }
  return made;
}

std::vector<ParcelPiece> pieces_of(const Parcel& parcel) {
  return {parcel.pieces().begin(), parcel.pieces().end()};
}

TEST(ExchangePlan, an_allgather_gives_all_the_same_and_keeps_the_order_of_members_in_every_tensor) {
  const Example made = example(Collective::kAllgather, {{2, 3, 4}, {10, 0, 30}});
  const ExchangePlan plan = made.plan(2);
  EXPECT_TRUE(plan.is_shared());
  EXPECT_THAT(pieces_of(plan.outgoing(0)),
              ElementsAre(ParcelPiece{0, 0, 4, 0, 0}, ParcelPiece{1, 4, 30, 0, 0}));
  EXPECT_THAT(pieces_of(plan.incoming(0)),
              ElementsAre(ParcelPiece{0, 0, 2, 0, 0}, ParcelPiece{1, 2, 10, 0, 0}));
  EXPECT_THAT(pieces_of(plan.incoming(1)), ElementsAre(ParcelPiece{0, 0, 3, 0, 2}));
  EXPECT_THAT(pieces_of(plan.incoming(2)),
              ElementsAre(ParcelPiece{0, 0, 4, 0, 5}, ParcelPiece{1, 4, 30, 0, 10}));
  EXPECT_EQ(plan.total_bytes(), 49 * sizeof(float));
}

TEST(ExchangePlan, only_the_root_of_a_broadcast_gives) {
  Example made = example(Collective::kBroadcast, {{100}, {7}});
  made.spec.root = 1;
  const ExchangePlan root = made.plan(1), other = made.plan(2);
  EXPECT_TRUE(root.gives());
  EXPECT_FALSE(other.gives());
  EXPECT_EQ(other.outgoing_chunks(), 0u);
  EXPECT_THAT(pieces_of(other.incoming(1)),
              ElementsAre(ParcelPiece{0, 0, 100, 0, 0}, ParcelPiece{1, 100, 7, 0, 0}));
  EXPECT_THAT(pieces_of(other.incoming(0)), IsEmpty());
}

TEST(ExchangePlan, a_reducescatter_gives_each_member_its_part_of_every_tensor) {
  const Example made = example(Collective::kReducescatter, {{2, 3, 4}, {1, 1, 0}});
  const ExchangePlan plan = made.plan(1);
  EXPECT_THAT(pieces_of(plan.outgoing(2)), ElementsAre(ParcelPiece{0, 0, 4, 5, 0}));
  for (const Rank from : {0, 1, 2})
    EXPECT_THAT(pieces_of(plan.incoming(from)),
                ElementsAre(ParcelPiece{0, 0, 3, 2, 0}, ParcelPiece{1, 3, 1, 1, 0}));
}

TEST(ExchangePlan, an_uneven_alltoall_finds_every_block_on_both_sides) {
  // [from][to]
  const Example made = example(Collective::kAlltoall, {{1, 2, 3, 0, 5, 6, 7, 0, 9}});
  const ExchangePlan plan = made.plan(1);
  EXPECT_THAT(pieces_of(plan.outgoing(0)), IsEmpty());
  EXPECT_THAT(pieces_of(plan.outgoing(2)), ElementsAre(ParcelPiece{0, 0, 6, 5, 0}));
  EXPECT_THAT(pieces_of(plan.incoming(0)), ElementsAre(ParcelPiece{0, 0, 2, 1, 0}));
  EXPECT_THAT(pieces_of(plan.incoming(1)), ElementsAre(ParcelPiece{0, 0, 5, 0, 2}));
  EXPECT_THAT(pieces_of(plan.incoming(2)), IsEmpty());
}

TEST(ExchangePlan, a_range_of_a_parcel_names_only_what_lies_in_it) {
  Parcel parcel;
  parcel.add(0, 5, 100, 200);
  parcel.add(1, 0, 0, 0);
  parcel.add(2, 4, 7, 8);
  std::vector<ParcelPiece> found;
  const auto note = [&](const ParcelPiece& piece) { found.push_back(piece); };
  parcel.for_range(3, 7, note);
  EXPECT_THAT(found, ElementsAre(ParcelPiece{0, 3, 2, 103, 203}, ParcelPiece{2, 5, 2, 7, 8}));
  found.clear();
  parcel.for_range(5, 5, note);
  EXPECT_THAT(found, IsEmpty());
}

TEST(ExchangePlan, every_member_chooses_the_same_algorithm_from_the_largest_parcel) {
  const auto algorithm_of = [](Collective what, std::vector<int64_t> counts, size_t ranks = 3) {
    const Example made = example(what, {std::move(counts)}, ranks, DType::kUint8);
    const LocalAlgorithm first = made.plan(0).algorithm();
    for (size_t me = 1; me < ranks; ++me) EXPECT_EQ(made.plan(static_cast<Rank>(me)).algorithm(), first);
    return first;
  };
  const auto inline_most = static_cast<int64_t>(kInlineBytes), one_shot_most = int64_t{kOneShotBytes};
  EXPECT_EQ(algorithm_of(Collective::kAllgather, {0, 0, 0}), LocalAlgorithm::kInline);
  EXPECT_EQ(algorithm_of(Collective::kAllgather, {0, inline_most, 0}), LocalAlgorithm::kInline);
  EXPECT_EQ(algorithm_of(Collective::kAllgather, {0, inline_most + 1, 0}), LocalAlgorithm::kOneShot);
  EXPECT_EQ(algorithm_of(Collective::kAllgather, {0, 0, one_shot_most}), LocalAlgorithm::kOneShot);
  EXPECT_EQ(algorithm_of(Collective::kAllgather, {0, 0, one_shot_most + 1}), LocalAlgorithm::kStaged);
  EXPECT_EQ(algorithm_of(Collective::kBroadcast, {one_shot_most + 1}), LocalAlgorithm::kStaged);
  EXPECT_EQ(algorithm_of(Collective::kReducescatter, {one_shot_most / 2, one_shot_most / 2}, 2),
            LocalAlgorithm::kOneShot);
  EXPECT_EQ(algorithm_of(Collective::kReducescatter, {one_shot_most / 2, one_shot_most / 2 + 1}, 2),
            LocalAlgorithm::kStaged);
  EXPECT_EQ(algorithm_of(Collective::kAlltoall, {1, 1, one_shot_most, 1}, 2), LocalAlgorithm::kStaged)
      << "what one member gives all does not fit";
}

// Every byte that one member writes into a stage or a one-shot buffer belongs to one parcel, and the
// receiver looks for it where the giver has put it.
TEST(ExchangePlan, parcels_share_buffers_without_overlap_and_both_ends_agree_on_the_place) {
  for (const size_t ranks : {2u, 3u, 7u, 128u}) {
    std::vector<int64_t> counts;
    for (size_t i = 0; i < ranks * ranks; ++i) counts.push_back(static_cast<int64_t>(i % 5 * 3));
    const Example made = example(Collective::kAlltoall, {counts}, ranks, DType::kUint8);
    for (Rank from = 0; from < static_cast<Rank>(std::min<size_t>(ranks, 7)); ++from) {
      const ExchangePlan giver = made.plan(from);
      size_t one_shot_end = 0;
      for (Rank to = 0; to < static_cast<Rank>(ranks); ++to) {
        EXPECT_LE(giver.lane_begin(to) + giver.lane_elements(), kChunkBytes);
        EXPECT_EQ(giver.lane_begin(to) % 64, 0u);
        if (giver.algorithm() != LocalAlgorithm::kOneShot) continue;
        EXPECT_GE(giver.one_shot_begin_to(to), one_shot_end);
        one_shot_end = giver.one_shot_begin_to(to) + giver.outgoing(to).count();
        EXPECT_LE(one_shot_end, kOneShotBytes);
        const ExchangePlan taker = made.plan(to);
        EXPECT_EQ(taker.one_shot_begin_from(from), giver.one_shot_begin_to(to));
        EXPECT_EQ(taker.incoming(from).count(), giver.outgoing(to).count());
        EXPECT_EQ(taker.lane_elements(), giver.lane_elements());
      }
    }
  }
}

TEST(ExchangePlan, the_example_of_its_header) {
  const Example made = example(Collective::kAlltoall, {{5, 40'000, 7, 1, 1, 1, 1, 1, 1}});
  const ExchangePlan plan = made.plan(0);
  EXPECT_EQ(plan.lane_elements(), 10'912u);
  EXPECT_EQ(plan.chunks_of(plan.outgoing(1)), 4u);
  EXPECT_EQ(plan.lane_begin(1), 43'648u);
}

TEST(ExchangePlan, a_parcel_with_more_chunks_than_can_be_counted_is_left_to_another_backend) {
  schedule::Spec spec{.what = Collective::kAlltoall, .counts = {}, .scale = {}, .segment_counts = {}};
  EXPECT_TRUE(ExchangePlan::can_plan(spec, 128)) << "counts are not known yet";
  spec.counts.assign(size_t{128} * 128, int64_t{1} << 20);
  EXPECT_TRUE(ExchangePlan::can_plan(spec, 128));
  spec.counts[77] = int64_t{1} << 40;
  EXPECT_FALSE(ExchangePlan::can_plan(spec, 128));
}

TEST(ExchangePlan, short_broadcasts_and_large_alltoalls_of_more_than_two_ranks_are_left_to_another_backend) {
  schedule::Spec spec{.what = Collective::kBroadcast, .counts = {}, .scale = {}, .segment_counts = {}};
  EXPECT_TRUE(ExchangePlan::pays(spec, 3)) << "the count is not known yet";
  spec.count = 32 << 10;  // of float32
  EXPECT_FALSE(ExchangePlan::pays(spec, 3));
  EXPECT_TRUE(ExchangePlan::pays(spec, 2));
  ++spec.count;
  EXPECT_TRUE(ExchangePlan::pays(spec, 3));
  spec.what = Collective::kAlltoall;
  spec.counts.assign(9, int64_t{8 << 20} / 3);
  EXPECT_TRUE(ExchangePlan::pays(spec, 3));
  spec.counts.assign(9, int64_t{8 << 20} / 3 + 1);
  EXPECT_FALSE(ExchangePlan::pays(spec, 3));
  spec.what = Collective::kAllgather;
  EXPECT_TRUE(ExchangePlan::pays(spec, 3));
}

}  // namespace
}  // namespace rueda::backend::exchange_plan_test
