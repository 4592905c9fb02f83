// What the ranks of one host share besides the channels between them: one memory with their control blocks,
// which the lowest of them makes, arenas of shared buffers, and, where they are few, doorbells. bootstrap
// creates this rank's part before the transports, which pass its descriptors on. When all connections are up,
// join() maps what the other ranks passed and makes the LocalHost that backend/local works on. Used only
// during init, on the thread that called init.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rueda/backend/local/host.h"
#include "rueda/memory/arena.h"
#include "rueda/runtime/links.h"
#include "rueda/runtime/peer_info.h"

namespace rueda::runtime {

class SharedWithHost {
 public:
  SharedWithHost() = default;  // of a rank that shares nothing
  // arena: null if this rank offers none. doorbell: the engine's eventfd. ranks: of the job. Fails where this
  // process could not make the memory if all of them were on this host; pages that nobody uses take none.
  static Result<SharedWithHost> create(std::shared_ptr<memory::Arena> arena, int doorbell, Rank ranks);

  void describe(PeerInfo& mine) const;
  // To be called before the ranks connect: offers it to the other ranks of this host, if it serves so many.
  Status offer(Links& links, Rank me, const std::vector<PeerInfo>& all);
  // To be called when they are connected. Null if no other rank of this host has passed anything.
  Result<std::shared_ptr<backend::LocalHost>> join(Links& links, Rank me,
                                                   const std::vector<PeerInfo>& all) &&;

 private:
  [[nodiscard]] std::vector<int> descriptors(bool is_few) const;
  Status take_from(Rank rank, Links& links, backend::HostRank& local);

  bool is_possible_ = false;
  std::vector<Rank> ranks_;  // of this host, this one among them; empty: they share nothing
  memory::SharedMemory memory_;
  std::shared_ptr<memory::Arena> arena_;
  int doorbell_ = -1;
};

// What a job says once about hosts whose ranks had to do without shared memory; "" where there are none.
std::string warn_of_unshared_memory(const std::vector<PeerInfo>& all);

// One sentence about a host with more ranks than can share memory; "" where there is none.
std::string warn_of_crowded_hosts(const std::vector<PeerInfo>& all);

}  // namespace rueda::runtime
