// The ranks of one host: their control blocks, arenas and doorbells, and how many calls each pair has begun.
// All groups of the process share it. Engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "rueda/backend/local/control_block.h"
#include "rueda/base/types.h"
#include "rueda/base/unique_fd.h"
#include "rueda/memory/shared_memory.h"

namespace rueda::backend {

// Of more ranks, each has no descriptor for the doorbells of the others. LocalHost then asks Ringer, which
// takes a microsecond longer.
inline constexpr size_t kRungByDescriptor = 8;

struct HostRank {
  Rank world_rank = -1;
  std::byte* control_block = nullptr;           // in the memory of the host
  const memory::SharedMemory* arena = nullptr;  // mine, or null if I have none; LocalHost sets those of peers
  memory::SharedMemory adopted_arena;           // only of a peer; empty: it has none
  UniqueFd doorbell;                            // an eventfd, only of a peer, up to kRungByDescriptor ranks
  int32_t numa_node = 0;                        // as the rank said at init
};

class LocalHost {
 public:
  using Ringer = std::function<void(Rank)>;  // wakes a rank that sleeps

  // ranks[me] is this process. keep_alive owns its arena and the memory of the host.
  LocalHost(std::vector<HostRank> ranks, size_t me, std::shared_ptr<const void> keep_alive = nullptr,
            Ringer ringer = {});

  [[nodiscard]] size_t me() const { return me_; }
  [[nodiscard]] size_t size() const { return ranks_.size(); }
  // Index on this host, or -1 if the rank is on another host.
  [[nodiscard]] int32_t index_of(Rank world_rank) const;
  [[nodiscard]] const HostRank& rank(size_t index) const { return ranks_[index]; }
  [[nodiscard]] ControlBlock& my_control_block() const { return control_block_in(ranks_[me_].control_block); }
  [[nodiscard]] const ControlBlock& control_block(size_t index) const {
    return control_block_in(ranks_[index].control_block);
  }
  [[nodiscard]] Mailbox& my_mailbox(size_t reader) const {
    return mailbox_in(ranks_[me_].control_block, reader);
  }
  [[nodiscard]] const Mailbox& mailbox_of(size_t owner) const {
    return mailbox_in(ranks_[owner].control_block, me_);
  }
  [[nodiscard]] int32_t numa_node_of(size_t index) const { return ranks_[index].numa_node; }

  uint64_t next_sequence(size_t peer) { return ++sequences_[peer]; }
  void return_sequence(size_t peer) { --sequences_[peer]; }
  // Whether the peer has stopped reading my memory for the call of this sequence, and for all before it.
  [[nodiscard]] bool has_finished(size_t peer, uint64_t sequence) const;

  // To be called after publishing something that the peer may wait for: wakes the peer if it sleeps and waits
  // for me.
  void ring(size_t peer) const;
  // Only that peer is to wake me; without one, anyone.
  void announce_sleep(std::optional<size_t> peer) const;
  void announce_waking() const;

 private:
  std::vector<HostRank> ranks_;
  size_t me_;
  std::shared_ptr<const void> keep_alive_;
  Ringer ringer_;
  std::vector<int32_t> index_of_;  // [world rank], up to the highest rank on this host
  std::vector<uint64_t> sequences_;
};

}  // namespace rueda::backend
