#include "rueda/runtime/peer_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "rueda/runtime/local_ranks.h"

namespace rueda::runtime::peer_info_test {
namespace {

using testing::HasSubstr;
using testing::Not;

// One PeerInfo per rank: hosts "aab" means ranks 0 and 1 on host a, rank 2 on host b.
std::vector<PeerInfo> world(const std::string& hosts, bool is_told) {
  std::vector<PeerInfo> all;
  for (size_t r = 0; r < hosts.size(); ++r) {
    PeerInfo info;
    info.release = "1";
    info.host = info.host_key = std::string(1, hosts[r]);
    info.size = static_cast<Rank>(hosts.size());
    if (is_told) {
      info.local_size = 0;
      for (size_t k = 0; k < hosts.size(); ++k) {
        info.local_size += hosts[k] == hosts[r] ? 1 : 0;
        info.local_rank += k <= r && hosts[k] == hosts[r] ? 1 : 0;
      }
    }
    all.push_back(info);
  }
  return all;
}

TEST(PeerInfo, survives_encoding_and_refuses_every_truncation) {
  PeerInfo info = world("ab", true)[1];
  info.process_sets = {{0, 1}, {}, {5}};
  info.own_sets = {2};
  info.settings.algorithm = "ring";
  info.settings.is_bitwise = true;
  info.shared_memory_fault = "no memfd";
  info.has_arena = true;
  info.numa_node = 3;
  info.cuda_version = 12040;
  info.cuda_fault = "it is too old";
  info.mpi_device_fault = "no CUDA memory";
  info.settings.gpu_operations = "staged";
  info.settings.hierarchical_allreduce = true;
  info.settings.staging_bytes = 4096;
  info.settings.cuda_ipc = "on";
  info.settings.cpu_operations = "mpi";
  info.settings.mpi_chunk_bytes = 4096;
  info.addresses = {{"tcp", "10.0.0.1:99"}, {"another", ""}};
  const Bytes raw = encode(info);
  EXPECT_EQ(decode_peer_info(raw).value(), info);
  for (size_t size = 0; size < raw.size(); ++size) {
    EXPECT_FALSE(decode_peer_info(std::span(raw).first(size)).is_ok()) << size;
  }
}

TEST(PeerInfo, with_too_many_transports_or_one_twice_is_refused) {
  PeerInfo info = world("a", true)[0];
  for (int i = 0; i < 64; ++i) info.addresses.emplace("t" + std::to_string(i), "here");
  EXPECT_TRUE(decode_peer_info(encode(info)).is_ok());
  info.addresses.emplace("t64", "here");
  EXPECT_FALSE(decode_peer_info(encode(info)).is_ok());
  info.addresses = {{"aa", "here"}, {"bb", "here"}};
  Bytes raw = encode(info);
  std::ranges::replace(raw, std::byte{'b'}, std::byte{'a'});
  EXPECT_FALSE(decode_peer_info(raw).is_ok());
}

TEST(RankPlacement, follows_the_definition_of_cross_ranks_on_uneven_hosts) {
  for (const bool is_told : {true, false}) {
    const std::vector<PeerInfo> all = world("aab", is_told);
    const RankPlacement second = place_of(1, all).value();
    EXPECT_EQ(second.local_rank, 1);
    EXPECT_EQ(second.local_size, 2);
    EXPECT_EQ(second.cross_size, 1) << "only host a has a process with local rank 1";
    EXPECT_EQ(second.cross_rank, 0);
    EXPECT_FALSE(second.is_homogeneous);
    const RankPlacement third = place_of(2, all).value();
    EXPECT_EQ(third.local_rank, 0);
    EXPECT_EQ(third.cross_rank, 1);
    EXPECT_EQ(third.cross_size, 2);
  }
}

TEST(RankPlacement, is_homogeneous_on_equal_hosts) {
  const RankPlacement place = place_of(3, world("aabb", false)).value();
  EXPECT_TRUE(place.is_homogeneous);
  EXPECT_EQ(place.cross_rank, 1);
  EXPECT_EQ(place.cross_size, 2);
}

TEST(RankPlacement, counts_the_hosts_of_the_launcher_where_they_share_a_machine) {
  std::vector<PeerInfo> all = world("aabb", true);
  for (PeerInfo& info : all) info.host_key = "one";
  for (Rank rank = 0; rank < 4; ++rank) {
    const RankPlacement place = place_of(rank, all).value();
    EXPECT_EQ(place.cross_rank, rank / 2);
    EXPECT_EQ(place.cross_size, 2);
  }
}

TEST(RankPlacement, refuses_a_local_rank_beyond_its_local_size) {
  std::vector<PeerInfo> all = world("aa", true);
  all[1].local_rank = 2;
  EXPECT_THAT(place_of(1, all).status().why, HasSubstr("local rank 2 is not below local size 2"));
}

TEST(Agreement, names_the_rank_with_another_release) {
  std::vector<PeerInfo> all = world("aaa", true);
  all[2].release = "2";
  const Status status = check_agreement(all);
  EXPECT_EQ(status.code, Code::kPermissionDenied);
  EXPECT_THAT(status.why, HasSubstr("rank 2 runs rueda 2 but rank 0 runs 1"));
}

TEST(Agreement, names_the_rank_whose_collectives_go_elsewhere) {
  std::vector<PeerInfo> all = world("aa", true);
  all[0].settings.cpu_operations = "native";
  all[1].settings.cpu_operations = "mpi";
  EXPECT_THAT(check_agreement(all).why,
              HasSubstr("rank 1 has RUEDA_CPU_OPERATIONS=mpi but rank 0 has native"));
}

TEST(Agreement, names_both_ranks_and_values_of_a_setting_that_differs) {
  std::vector<PeerInfo> all = world("aaa", true);
  all[2].settings.gpu_operations = "staged";
  EXPECT_THAT(check_agreement(all).why,
              HasSubstr("rank 2 has RUEDA_GPU_OPERATIONS=staged but rank 0 has none; set it alike"));
  for (PeerInfo& info : all) info.settings.gpu_operations = "nccl";
  EXPECT_TRUE(check_agreement(all).is_ok());
  all[1].settings.gpu_operations.clear();
  EXPECT_THAT(check_agreement(all).why, HasSubstr("rank 1 has no RUEDA_GPU_OPERATIONS but rank 0 has nccl"));
  all[1].settings.gpu_operations = "nccl";
  all[1].settings.is_bitwise = true;
  EXPECT_THAT(check_agreement(all).why,
              HasSubstr("rank 1 has RUEDA_DETERMINISM=bitwise but rank 0 has hosts"));
}

TEST(Agreement, about_process_sets_names_both_variables) {
  std::vector<PeerInfo> all = world("aa", true);
  for (PeerInfo& info : all) info.size = 2;
  all[1].settings.dynamic_process_sets = !all[0].settings.dynamic_process_sets;
  EXPECT_THAT(check_agreement(all).why,
              HasSubstr("rank 0 and rank 1 disagree about RUEDA_DYNAMIC_PROCESS_SETS (or HOROVOD_"));
}

TEST(Topology, numbers_hosts_in_order_of_first_member) {
  const schedule::Topology topology = topology_of({1, 2, 3}, world("baab", true));
  EXPECT_THAT(topology.host_of, testing::ElementsAre(0, 0, 1));
}

TEST(PeerInfo, two_machines_of_one_name_do_not_share_a_clock) {
  std::vector<PeerInfo> all = world("aab", true);
  for (PeerInfo& info : all) info.host = "node";
  EXPECT_TRUE(are_on_one_host(all, 0, 1));
  EXPECT_FALSE(are_on_one_host(all, 0, 2));
  EXPECT_FALSE(is_one_host(all));
  EXPECT_TRUE(is_one_host(world("aaa", true)));
  EXPECT_TRUE(is_one_host(world("a", false)));
}

TEST(LocalRanks, a_host_with_more_ranks_than_can_share_memory_is_named) {
  std::vector<PeerInfo> all = world(std::string(1024, 'a') + std::string(1024, 'b'), true);
  for (PeerInfo& info : all) info.addresses["shm"] = "here";
  EXPECT_EQ(warn_of_crowded_hosts(all), "");
  all.push_back(all.back());
  EXPECT_THAT(warn_of_crowded_hosts(all),
              testing::AllOf(HasSubstr("host b has 1025 ranks"), HasSubstr("1024")));
  all.back().addresses.clear();
  EXPECT_EQ(warn_of_crowded_hosts(all), "") << "that rank has chosen to go without";
}

TEST(LocalRanks, those_that_cannot_share_memory_are_named_once_with_the_cause) {
  std::vector<PeerInfo> all = world("aabbc", true);
  EXPECT_EQ(warn_of_unshared_memory(all), "");
  all[4].shared_memory_fault = "memfd_create failed.";
  EXPECT_EQ(warn_of_unshared_memory(all), "") << "host c has no other rank to share with";
  for (const int rank : {2, 3}) all[static_cast<size_t>(rank)].shared_memory_fault = "it is forbidden.";
  EXPECT_THAT(warn_of_unshared_memory(all),
              testing::AllOf(HasSubstr("host: rank 2 (host b); rank 3 (host b). "),
                             HasSubstr("Rank 2 says: it is forbidden. "), HasSubstr("RUEDA_TRANSPORTS=tcp"),
                             Not(HasSubstr("memfd_create")), Not(HasSubstr("ulimit"))))
      << "the cause says what to do";
}

}  // namespace
}  // namespace rueda::runtime::peer_info_test
