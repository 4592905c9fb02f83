// The control block: what a rank shows the other ranks of its host. It writes its own, and the others read
// it. The blocks of all ranks lie in one memory, which all of them map. This file alone defines the layout.
// Values that a peer wrote are checked before they are used as addresses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rueda/backend/local/teams.h"

namespace rueda::backend {

// Of one host. With more, a lane of an exchange would be shorter than a cache line (exchange_plan.cc).
inline constexpr size_t kMaxLocalRanks = 1024;
inline constexpr size_t kInlineBytes = 96;                // these travel in the post itself
inline constexpr size_t kOneShotBytes = 128 << 10;        // one-shot: a whole input
inline constexpr size_t kChunkBytes = 128 << 10;          // staged: stays in the L2 caches of both sides
inline constexpr uint64_t kStages = 4;                    // chunks of a staged allreduce under way
inline constexpr uint64_t kExchangeStages = 2 * kStages;  // of other collectives, which give in one step
inline constexpr size_t kMaxRegisteredSegments = 1024;    // tensors of a call whose addresses are shown

// Announces one call of the owner to one peer. `arrived` is written last: (sequence << 16) | generation,
// where the sequence counts the calls of this pair. Two posts alternate: before a rank announces call s + 2,
// it has seen the peer announce call s + 1, so the peer is done with call s.
struct alignas(128) Post {
  uint64_t arrived;
  uint32_t is_registered;  // all segments lie in the owner's arena, at the addresses in its table
  uint32_t parity;         // of the owner's one-shot buffer and table for this call
  uint64_t bytes;          // must be equal on both sides
  uint64_t unused;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(Post) == 128);

constexpr uint64_t arrival_of(uint64_t sequence, uint16_t generation = 0) {
  return sequence << 16 | generation;
}

// How far the owner has come. The values only grow: (sequence << 24) | chunks.
struct alignas(64) Progress {
  uint64_t staged;    // chunks: my contributions to them lie in my stages
  uint64_t reduced;   // chunks of an allreduce: the results of my slices of them lie in my stages
  uint64_t taken;     // chunks: I have copied or reduced what the peer's stages have for me of them
  uint64_t finished;  // a sequence: I have stopped reading the peer's memory for this call and all before it
};

inline constexpr uint64_t kMostChunks = (1 << 24) - 1;  // of one call
constexpr uint64_t progress_of(uint64_t sequence, uint64_t chunks) { return sequence << 24 | chunks; }

struct alignas(128) Mailbox {
  Post posts[2];
  Progress progress;
};

struct SegmentAddress {
  uint64_t input, output;  // offsets in the owner's arena
};

// Who is to ring the doorbell of a rank. Set by the owner, cleared by the rank that rings.
inline constexpr uint32_t kAwake = 0, kAsleepForAnyone = 1;
constexpr uint32_t asleep_for(size_t index) { return static_cast<uint32_t>(index) + 2; }  // on the host

struct ControlBlock {
  struct alignas(64) Sleep {
    uint32_t waits_for;
  };
  Sleep sleep;
  SegmentAddress tables[2][kMaxRegisteredSegments];
  alignas(4096) std::byte one_shot[2][kOneShotBytes];
  // Of an allreduce, the first half holds contributions and the second half results.
  alignas(4096) std::byte stages[2 * kStages][kChunkBytes];
  // What the members of my team contribute to a gathered call, [place in the team] (gathered.h).
  alignas(4096) std::byte gathered[kTeamRanks][kInlineBytes];
};

// The mailboxes follow the block, one for each rank of the host: [reader's index on the host]. Whole pages,
// so that each page lies near the rank that writes it.
constexpr size_t control_block_bytes(size_t ranks) {
  return (sizeof(ControlBlock) + ranks * sizeof(Mailbox) + 4095) / 4096 * 4096;
}

// The memory that the ranks of a host map: a table of words, one for each rank and one more, by which they
// watch over one another (transport/shm/process_watch.h), then the control blocks: [index on the host].
constexpr size_t host_words_bytes(size_t ranks) {
  return ((ranks + 1) * sizeof(uint32_t) + 4095) / 4096 * 4096;
}
constexpr size_t host_memory_bytes(size_t ranks) {
  return host_words_bytes(ranks) + ranks * control_block_bytes(ranks);
}
inline std::span<uint32_t> host_words_in(std::byte* memory, size_t ranks) {
  return {reinterpret_cast<uint32_t*>(memory), ranks + 1};
}
inline std::byte* control_block_at(std::byte* memory, size_t ranks, size_t index) {
  return memory + host_words_bytes(ranks) + index * control_block_bytes(ranks);
}

inline ControlBlock& control_block_in(std::byte* at) { return *reinterpret_cast<ControlBlock*>(at); }
inline Mailbox& mailbox_in(std::byte* at, size_t reader) {
  return reinterpret_cast<Mailbox*>(at + sizeof(ControlBlock))[reader];
}

// A rank stores a value and then reads whether the other side sleeps. The other side announces its sleep
// and then reads the values. One of them must see what the other stored, which needs a single order of
// all four accesses.
inline uint64_t load_shared(const uint64_t& word) {
  return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(word)).load(std::memory_order_seq_cst);
}
inline void store_shared(uint64_t& word, uint64_t value) {
  std::atomic_ref<uint64_t>(word).store(value, std::memory_order_seq_cst);
}

}  // namespace rueda::backend
