// The table of all ranks as it travels: what comes out is what went in, and nothing else is accepted.
#include "rueda/runtime/peer_table.h"

#include <gtest/gtest.h>

#include <string>

#include "rueda/base/limits.h"

namespace rueda::runtime::peer_table_test {
namespace {

PeerInfo info_of(size_t rank, size_t ranks_on_host) {
  PeerInfo info;
  info.release = "1";
  info.pid = 100 + static_cast<int64_t>(rank);
  info.began = 7'000 + static_cast<int64_t>(rank);
  info.host = "host" + std::to_string(rank / ranks_on_host);
  info.host_key = info.host + "|a boot of 36 characters, about so long|4026531840";
  info.local_rank = static_cast<Rank>(rank % ranks_on_host);
  info.local_size = static_cast<Rank>(ranks_on_host);
  info.addresses = {{"tcp", "10.0.0.1:" + std::to_string(rank)}, {"shm", "shm:" + std::to_string(rank)}};
  info.process_sets = {{0, 1}, {2}};
  return info;
}

std::vector<PeerInfo> world(size_t ranks, size_t ranks_on_host) {
  std::vector<PeerInfo> all;
  for (size_t rank = 0; rank < ranks; ++rank) all.push_back(info_of(rank, ranks_on_host));
  return all;
}

TEST(PeerTable, gives_every_rank_what_each_has_said) {
  for (const size_t ranks : {1u, 2u, 7u, 64u}) {
    std::vector<PeerInfo> all = world(ranks, 4);
    all.back().settings.algorithm = "ring";
    all.back().shared_memory_fault = "no memfd";
    EXPECT_EQ(decode_table(encode_table(all)).value(), all) << ranks;
  }
}

TEST(PeerTable, holds_once_what_the_ranks_of_a_host_say_alike) {
  const size_t one_host = encode_table(world(64, 64)).size();
  const size_t many_hosts = encode_table(world(64, 1)).size();
  const size_t apart = encode(info_of(0, 64)).size() * 64;
  EXPECT_LT(one_host, apart / 2);
  EXPECT_LT(one_host, many_hosts);
}

TEST(PeerTable, cut_anywhere_or_longer_than_it_says_is_refused) {
  const Bytes raw = encode_table(world(3, 2));
  for (size_t size = 0; size < raw.size(); ++size)
    EXPECT_FALSE(decode_table(std::span(raw).first(size)).is_ok()) << size;
  Bytes longer = raw;
  longer.push_back(std::byte{0});
  EXPECT_EQ(decode_table(longer).status().code, Code::kPermissionDenied);
}

TEST(PeerTable, with_any_byte_changed_is_read_or_refused_but_never_read_past) {
  const Bytes raw = encode_table(world(2, 1));
  for (size_t at = 0; at < raw.size(); ++at)
    for (const unsigned changed : {0x00U, 0xffU}) {
      Bytes other = raw;
      other[at] = static_cast<std::byte>(changed);
      const Result<std::vector<PeerInfo>> read = decode_table(other);
      EXPECT_TRUE(!read.is_ok() || read.value().size() <= raw.size()) << at;
    }
}

TEST(PeerTable, longer_than_a_value_of_the_store_travels_in_parts) {
  Bytes table(1'000);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::byte>(i);
  for (const size_t most : {5u, 100u, 1'003u, 1'004u, 5'000u}) {
    if (table.size() / (most - 4) > 64) table.resize(50);
    const std::vector<Bytes> parts = parts_of(table, most);
    Bytes whole;
    for (const Bytes& part : parts) {
      EXPECT_LE(part.size(), most);
      EXPECT_EQ(append_part(whole, part).value(), parts.size());
    }
    EXPECT_EQ(whole, table) << most;
    table.resize(1'000, std::byte{9});
  }
}

TEST(PeerTable, of_an_impossible_number_of_parts_is_refused) {
  Bytes whole;
  for (const uint32_t count : {0U, 65U}) {
    ByteWriter part;
    part.put(count);
    EXPECT_FALSE(append_part(whole, part.bytes()).is_ok()) << count;
  }
  EXPECT_FALSE(append_part(whole, Bytes(3)).is_ok());
}

}  // namespace
}  // namespace rueda::runtime::peer_table_test
