#include "rueda/runtime/facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/runtime/local_ranks.h"

namespace rueda::runtime {
namespace {

using testing::HasSubstr;

// One Facts per rank: hosts "aab" means ranks 0 and 1 on host a, rank 2 on host b.
std::vector<Facts> world(const std::string& hosts, bool is_told) {
  std::vector<Facts> all;
  for (size_t r = 0; r < hosts.size(); ++r) {
    Facts facts;
    facts.release = "1";
    facts.host = facts.host_key = std::string(1, hosts[r]);
    facts.size = static_cast<Rank>(hosts.size());
    if (is_told) {
      facts.local_size = 0;
      for (size_t k = 0; k < hosts.size(); ++k) {
        facts.local_size += hosts[k] == hosts[r] ? 1 : 0;
        facts.local_rank += k <= r && hosts[k] == hosts[r] ? 1 : 0;
      }
    }
    all.push_back(facts);
  }
  return all;
}

TEST(Facts, survive_encoding_and_refuse_every_truncation) {
  Facts facts = world("ab", true)[1];
  facts.process_sets = {{0, 1}, {}, {5}};
  facts.algorithm = "ring";
  facts.is_bitwise = true;
  facts.tcp_address = "tcp 10.0.0.1:99";
  const Bytes raw = encode(facts);
  EXPECT_EQ(decode_facts(raw).value(), facts);
  for (size_t size = 0; size < raw.size(); ++size) {
    EXPECT_FALSE(decode_facts(std::span(raw).first(size)).is_ok()) << size;
  }
}

TEST(Place, follows_the_definition_of_cross_ranks_on_uneven_hosts) {
  for (const bool is_told : {true, false}) {
    const std::vector<Facts> all = world("aab", is_told);
    const Place second = place_of(1, all).value();
    EXPECT_EQ(second.local_rank, 1);
    EXPECT_EQ(second.local_size, 2);
    EXPECT_EQ(second.cross_size, 1) << "only host a has a process with local rank 1";
    EXPECT_EQ(second.cross_rank, 0);
    EXPECT_FALSE(second.is_homogeneous);
    const Place third = place_of(2, all).value();
    EXPECT_EQ(third.local_rank, 0);
    EXPECT_EQ(third.cross_rank, 1);
    EXPECT_EQ(third.cross_size, 2);
  }
}

TEST(Place, is_homogeneous_on_equal_hosts) {
  const Place place = place_of(3, world("aabb", false)).value();
  EXPECT_TRUE(place.is_homogeneous);
  EXPECT_EQ(place.cross_rank, 1);
  EXPECT_EQ(place.cross_size, 2);
}

TEST(Place, counts_the_hosts_of_the_launcher_where_they_share_a_machine) {
  std::vector<Facts> all = world("aabb", true);
  for (Facts& facts : all) facts.host_key = "one";
  for (Rank rank = 0; rank < 4; ++rank) {
    const Place place = place_of(rank, all).value();
    EXPECT_EQ(place.cross_rank, rank / 2);
    EXPECT_EQ(place.cross_size, 2);
  }
}

TEST(Place, refuses_a_local_rank_beyond_its_local_size) {
  std::vector<Facts> all = world("aa", true);
  all[1].local_rank = 2;
  EXPECT_THAT(place_of(1, all).status().why, HasSubstr("local rank 2 is not below local size 2"));
}

TEST(Agreement, names_the_rank_with_another_release) {
  std::vector<Facts> all = world("aaa", true);
  all[2].release = "2";
  const Status status = check_agreement(all);
  EXPECT_EQ(status.code, Code::kPermissionDenied);
  EXPECT_THAT(status.why, HasSubstr("rank 2 runs rueda 2 but rank 0 runs 1"));
}

TEST(Agreement, tells_apart_number_size_and_values_of_process_sets) {
  std::vector<Facts> all = world("aaa", true);
  all[0].process_sets = {{0, 1}};
  all[1].process_sets = {{0, 1}};
  EXPECT_THAT(check_agreement(all).why,
              HasSubstr("Different ranks tried to set up mismatching numbers of process sets"));
  all[2].process_sets = {{0, 2}};
  EXPECT_THAT(check_agreement(all).why, HasSubstr("mismatching values on different ranks"));
  all[2].process_sets = {{0, 1, 2}};
  EXPECT_THAT(check_agreement(all).why, HasSubstr("mismatching size on different ranks"));
  all[2].process_sets = {{0, 1}};
  EXPECT_TRUE(check_agreement(all).is_ok());
}

TEST(ProcessSets, refuse_bad_ranks_and_duplicates_by_name) {
  EXPECT_THAT(check_process_sets({{0, 3}}, 3).why, HasSubstr("invalid rank: 3"));
  EXPECT_THAT(check_process_sets({{-1}}, 3).why, HasSubstr("invalid rank: -1"));
  EXPECT_THAT(check_process_sets({{1, 1}}, 3).why, HasSubstr("duplicate rank: 1"));
  EXPECT_THAT(check_process_sets({{0}, {0}}, 3).why, HasSubstr("process_sets entry number 2 is a duplicate"));
  EXPECT_THAT(check_process_sets({{0, 1, 2}, {0, 1, 2}}, 3).why,
              HasSubstr("process_sets entry number 2 is a duplicate"));
  EXPECT_TRUE(check_process_sets({{0, 1, 2}}, 3).is_ok());
  EXPECT_TRUE(check_process_sets({{0}, {0, 1}, {}}, 3).is_ok());
}

TEST(Topology, numbers_hosts_in_order_of_first_member) {
  const schedule::Topology topology = topology_of({1, 2, 3}, world("baab", true));
  EXPECT_THAT(topology.host_of, testing::ElementsAre(0, 0, 1));
}

TEST(Facts, two_machines_of_one_name_do_not_share_a_clock) {
  std::vector<Facts> all = world("aab", true);
  for (Facts& facts : all) facts.host = "node";
  EXPECT_TRUE(are_on_one_host(all, 0, 1));
  EXPECT_FALSE(are_on_one_host(all, 0, 2));
}

TEST(LocalRanks, a_host_with_more_ranks_than_a_board_serves_is_named) {
  std::vector<Facts> all = world(std::string(128, 'a') + std::string(128, 'b'), true);
  for (Facts& facts : all) facts.shm_address = "shm";
  EXPECT_EQ(warn_of_crowded_hosts(all), "");
  all.push_back(all.back());
  EXPECT_THAT(warn_of_crowded_hosts(all),
              testing::AllOf(HasSubstr("host b has 129 ranks"), HasSubstr("128")));
  all.back().shm_address.clear();
  EXPECT_EQ(warn_of_crowded_hosts(all), "") << "that rank has chosen to go without";
}

}  // namespace
}  // namespace rueda::runtime
