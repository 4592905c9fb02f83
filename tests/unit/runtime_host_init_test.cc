// What an init asks of the store: it grows with the number of hosts, not with that of ranks. A host is here
// an address of the loopback network, because the relay of a host belongs to one address of the store.
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <thread>
#include <vector>

#include "rueda/runtime/init_exchange.h"
#include "rueda/store/tcp_store.h"

namespace rueda::runtime::host_init_test {
namespace {

Deadline soon() { return Deadline::after(60 * kSecond); }

// Commands that the store takes while all ranks give their peer info and read the table.
int64_t commands_of_init(Rank hosts, Rank host_size) {
  const Secret secret = make_secret().value();
  const auto server = store::serve_store("0.0.0.0", 0, "job", secret, "1.0").value();
  const Rank size = hosts * host_size;
  std::barrier ready(size + 1);
  std::vector<std::jthread> ranks;
  std::vector<std::vector<PeerInfo>> tables(static_cast<size_t>(size));
  for (Rank rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const std::string address = "127.0.0." + std::to_string(1 + rank / host_size);
      const store::TcpSite site{address, server->port(), "job", secret, "1.0"};
      HandshakeOutcome refused{};
      const auto store = store::dial_store_of_host(site, soon(), refused).value();
      ready.arrive_and_wait();  // all have dialled
      ready.arrive_and_wait();
      InitExchange exchange(*store, 1, rank, size, soon());
      PeerInfo info;
      info.pid = 100 + rank;
      info.local_size = host_size;
      EXPECT_TRUE(store->announce({"arrived/", rank, "", host_size}, soon()).is_ok());
      EXPECT_TRUE(exchange.publish(info).is_ok());
      const Status gathered = exchange.gather(tables[static_cast<size_t>(rank)]);
      EXPECT_TRUE(gathered.is_ok()) << gathered.why;
      ready.arrive_and_wait();  // before the process of a relay ends
    });
  }
  ready.arrive_and_wait();
  const int64_t before = server->commands();
  ready.arrive_and_wait();
  ready.arrive_and_wait();
  const int64_t taken = server->commands() - before;
  ranks.clear();
  for (const std::vector<PeerInfo>& table : tables) {
    EXPECT_EQ(table.size(), static_cast<size_t>(size));
    for (Rank rank = 0; rank < std::ssize(table); ++rank)
      EXPECT_EQ(table[static_cast<size_t>(rank)].pid, 100 + rank);
  }
  return taken;
}

// 4 hosts need about 5 commands each: one for who has come, one for the peer info, one for the table; rank 0
// reads one batch of each host. Threads that sleep long may split a batch, so the bound leaves room.
TEST(InitOfHosts, asks_the_store_by_hosts_and_not_by_ranks) {
  const Rank hosts = 4, few = 2, many = 48;
  const int64_t of_few = commands_of_init(hosts, few), of_many = commands_of_init(hosts, many);
  RecordProperty("commands_of_few", std::to_string(of_few));
  RecordProperty("commands_of_many", std::to_string(of_many));
  EXPECT_LT(of_many, int64_t{hosts} * many)
      << "one for each rank would be as many; with few ranks: " << of_few;
}

}  // namespace
}  // namespace rueda::runtime::host_init_test
