#include "rueda/backend/local/host.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rueda/base/check.h"

namespace rueda::backend {

LocalHost::LocalHost(std::vector<LocalRank> ranks, size_t me, std::shared_ptr<const void> keep_alive)
    : ranks_(std::move(ranks)), me_(me), keep_alive_(std::move(keep_alive)), sequences_(ranks_.size(), 0) {
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (i != me) ranks_[i].arena = &ranks_[i].adopted_arena;
  RUEDA_CHECK(me < ranks_.size() && ranks_.size() <= kMaxLocalRanks, "a host has a bounded number of ranks");
  for (const LocalRank& rank : ranks_)
    RUEDA_CHECK(rank.board.bytes() >= kBoardBytes, "a board has a fixed size");
}

int32_t LocalHost::index_of(Rank world_rank) const {
  const auto found = std::ranges::find(ranks_, world_rank, &LocalRank::world_rank);
  return found == ranks_.end() ? -1 : static_cast<int32_t>(found - ranks_.begin());
}

// Publishing and then looking at the flag, against raising the flag and then looking at what was published:
// one side must see the other's store, hence the full fence on both sides.
void LocalHost::ring(size_t peer) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic_ref<uint32_t> flag(layout_of(ranks_[peer].board).sleep.is_sleeping);
  if (flag.load(std::memory_order_relaxed) == 0 || flag.exchange(0) == 0) return;
  const uint64_t one = 1;
  // A full counter is as good as a ring; a peer that is gone is told by its lane.
  [[maybe_unused]] const ssize_t written = write(ranks_[peer].bell.get(), &one, sizeof(one));
}

void LocalHost::announce_sleep() const {
  std::atomic_ref<uint32_t>(my_board().sleep.is_sleeping).store(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void LocalHost::announce_waking() const {
  std::atomic_ref<uint32_t>(my_board().sleep.is_sleeping).store(0, std::memory_order_relaxed);
}

}  // namespace rueda::backend
