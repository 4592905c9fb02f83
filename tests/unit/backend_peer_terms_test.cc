// What members conclude from what they have told one another about their GPUs. Pure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/backend/device/peer_terms.h"

namespace rueda::backend::peer_terms_test {
namespace {

using testing::HasSubstr;

PeerRow row(unsigned char gpu, int64_t slot_bytes = 1 << 20) {
  PeerRow made;
  made.set_gpu({.bytes = {gpu, 0xAB}}, "NVIDIA A100 MIG 1g.5gb");
  made.slot_bytes = slot_bytes;
  return made;
}

const Group kGroup{.id = 3, .members = {1, 4, 6}, .me = 0};

TEST(PeerTerms, name_the_first_two_ranks_that_share_a_gpu_and_the_gpu) {
  EXPECT_EQ(shared_gpu_of(kGroup, std::vector{row(1), row(2), row(3)}), "");
  const std::string said = shared_gpu_of(kGroup, std::vector{row(1), row(2), row(1)});
  EXPECT_THAT(said, HasSubstr("rank 1 and rank 6 use the same GPU (NVIDIA A100 MIG 1g.5gb, UUID "
                              "01ab0000-0000-0000-0000-000000000000)"));
  EXPECT_EQ(shared_gpu_of(kGroup, std::vector{PeerRow{}, PeerRow{}, row(1)}), "") << "a rank may have none";
}

TEST(PeerTerms, name_the_first_rank_that_cannot_and_cut_what_is_too_long) {
  std::vector<PeerRow> rows{row(1), row(2), row(3)};
  EXPECT_EQ(refusal_of(kGroup, rows), "");
  rows[1].set_why_not("its window cannot be exported.");
  rows[2].set_why_not(std::string(1000, 'x'));
  EXPECT_EQ(refusal_of(kGroup, rows), "rank 4: its window cannot be exported.");
  rows[1] = row(2);
  EXPECT_EQ(refusal_of(kGroup, rows), "rank 6: " + std::string(sizeof(PeerRow::why_not) - 1, 'x'));
}

TEST(PeerTerms, cut_sections_for_the_smallest_window) {
  const auto slot = static_cast<int64_t>(slot_bytes_for(1 << 20));
  EXPECT_EQ(section_bytes_of(std::vector{row(1, 8 * slot), row(2, slot), row(3, 2 * slot)}), size_t{1} << 20);
  EXPECT_EQ(section_bytes_of(std::vector{row(1, 100), row(2, slot)}), 0U);
}

TEST(PeerTerms, share_every_element_once) {
  for (const int64_t count : {int64_t{1}, int64_t{63}, int64_t{64}, int64_t{1000}, int64_t{123'457}}) {
    for (size_t adders = 1; adders <= 16; ++adders) {
      int64_t next = 0;
      for (size_t index = 0; index < adders; ++index) {
        const ElementRange share = share_of(count, index, adders);
        EXPECT_EQ(share.begin, next);
        EXPECT_TRUE(share.begin % 64 == 0 || share.count == 0);
        next += share.count;
      }
      EXPECT_EQ(next, count) << adders;
    }
  }
}

}  // namespace
}  // namespace rueda::backend::peer_terms_test
