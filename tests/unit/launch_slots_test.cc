#include "launch/slots.h"

#include <gtest/gtest.h>

namespace rueda::launch::slots_test {
namespace {

TEST(Slots, fills_one_host_after_the_other_as_ranks_are_placed) {
  Slots slots;
  slots.offer({{"a", 2}, {"b", 1}});
  const auto first = slots.take(0), second = slots.take(0), third = slots.take(0);
  EXPECT_EQ(first->host + std::to_string(first->slot), "a0");
  EXPECT_EQ(second->host + std::to_string(second->slot), "a1");
  EXPECT_EQ(third->host + std::to_string(third->slot), "b0");
  EXPECT_FALSE(slots.take(0));
  EXPECT_EQ(slots.taken(), 3);
  EXPECT_EQ(slots.offered(), 3);
}

TEST(Slots, a_slot_that_fails_rests_twice_as_long_each_time_and_60_s_at_most) {
  Slots slots;
  slots.offer({{"a", 1}});
  Nanos now = 0;
  for (const Nanos rest : {1, 2, 4, 8, 16, 32, 60, 60}) {
    const auto place = slots.take(now);
    ASSERT_TRUE(place) << rest;
    slots.end(*place, true, 0, now);
    EXPECT_FALSE(slots.take(now + rest * kSecond - 1)) << rest;
    EXPECT_EQ(slots.next(now), now + rest * kSecond);
    now += rest * kSecond;
  }
}

TEST(Slots, a_long_life_makes_a_slot_sound_again_and_each_life_has_a_number) {
  Slots slots;
  slots.offer({{"a", 1}});
  const auto first = slots.take(0);
  slots.end(*first, true, 0, 0);
  const auto second = slots.take(kSecond);
  EXPECT_EQ(first->life, 0);
  EXPECT_EQ(second->life, 1);
  slots.end(*second, true, kLongestRest, 100 * kSecond);
  EXPECT_EQ(slots.next(100 * kSecond), 101 * kSecond);
}

TEST(Slots, a_host_that_is_lost_after_it_was_missing_is_used_when_it_is_offered_again) {
  Slots slots;
  slots.offer({{"a", 1}});
  slots.offer({});
  slots.lose("a");
  slots.offer({{"a", 1}});
  EXPECT_TRUE(slots.take(0));
}

TEST(Slots, a_host_whose_network_is_cut_rests_as_a_whole_for_a_minute_then_two_and_ten_at_most) {
  Slots slots;
  slots.offer({{"a", 2}, {"b", 1}});
  Nanos now = 0;
  for (const Nanos minutes : {1, 2, 4, 8, 10, 10}) {
    slots.rest("a", now);
    slots.rest("a", now) /* of its second process */;
    const auto elsewhere = slots.take(now);
    ASSERT_TRUE(elsewhere);
    EXPECT_EQ(elsewhere->host, "b");
    EXPECT_FALSE(slots.take(now + minutes * 60 * kSecond - 1));
    EXPECT_EQ(slots.next(now), now + minutes * 60 * kSecond);
    now += minutes * 60 * kSecond;
    const auto again = slots.take(now);
    ASSERT_TRUE(again) << minutes;
    EXPECT_EQ(again->host, "a");
    slots.end(*again, false, 0, now);
    slots.end(*elsewhere, false, 0, now);
  }
}

TEST(Slots, a_host_from_which_a_process_has_joined_since_is_sound_again) {
  Slots slots;
  slots.offer({{"a", 1}});
  Nanos now = 0;
  for (int cut = 0; cut < 6; ++cut) {
    slots.rest("a", now);
    EXPECT_FALSE(slots.take(now + kCutRest - 1));
    now += kCutRest;
    const auto place = slots.take(now);
    ASSERT_TRUE(place) << cut;
    slots.join("a");
    slots.end(*place, false, 0, now);
  }
}

TEST(Slots, a_process_that_ended_well_leaves_a_slot_that_does_not_rest) {
  Slots slots;
  slots.offer({{"a", 1}});
  slots.end(*slots.take(0), false, 0, 0);
  EXPECT_TRUE(slots.take(0));
}

TEST(Slots, slots_that_are_no_longer_offered_start_nothing) {
  Slots slots;
  slots.offer({{"a", 2}, {"b", 1}});
  const auto a0 = *slots.take(0), a1 = *slots.take(0);
  slots.offer({{"a", 1}});
  EXPECT_TRUE(slots.is_offered(a0));
  EXPECT_FALSE(slots.is_offered(a1));
  EXPECT_FALSE(slots.take(0)) << "a0 is taken, and b is gone";
  slots.end(a1, false, 0, 0);
  EXPECT_FALSE(slots.take(0));
  slots.offer({{"a", 2}});
  EXPECT_EQ(slots.take(0)->life, 1);
}

TEST(Slots, a_process_whose_slot_is_gone_is_replaced_before_it_ends) {
  Slots slots;
  slots.offer({{"a", 1}, {"b", 2}});
  (void)slots.take(0);
  (void)slots.take(0);
  EXPECT_EQ(slots.taken(), 2);
  slots.offer({{"b", 2}});
  EXPECT_EQ(slots.taken(), 1);
  EXPECT_EQ(slots.take(0)->host, "b");
  EXPECT_EQ(slots.taken(), 2);
}

TEST(Slots, a_lost_host_starts_nothing_until_it_was_missing) {
  Slots slots;
  slots.offer({{"a", 1}, {"b", 1}});
  slots.lose("a");
  EXPECT_EQ(slots.take(0)->host, "b");
  EXPECT_FALSE(slots.take(0));
  slots.offer({{"b", 1}});
  slots.offer({{"b", 1}, {"a", 1}});
  EXPECT_EQ(slots.take(0)->host, "a");
}

}  // namespace
}  // namespace rueda::launch::slots_test
