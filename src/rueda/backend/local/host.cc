#include "rueda/backend/local/host.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rueda/base/check.h"

namespace rueda::backend {

LocalHost::LocalHost(std::vector<HostRank> ranks, size_t me, std::shared_ptr<const void> keep_alive,
                     Ringer ringer)
    : ranks_(std::move(ranks)),
      me_(me),
      keep_alive_(std::move(keep_alive)),
      ringer_(std::move(ringer)),
      sequences_(ranks_.size(), 0) {
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (i != me && ranks_[i].adopted_arena.base() != nullptr) ranks_[i].arena = &ranks_[i].adopted_arena;
  RUEDA_CHECK(me < ranks_.size() && ranks_.size() <= kMaxLocalRanks, "a host has a bounded number of ranks");
  for (size_t i = 0; i < ranks_.size(); ++i) {
    RUEDA_CHECK(ranks_[i].control_block != nullptr, "each rank of the host has a control block");
    RUEDA_CHECK(i == me || ranks_[i].doorbell.is_open() || ringer_, "each rank of the host can be woken");
    const auto rank = static_cast<size_t>(ranks_[i].world_rank);
    if (rank >= index_of_.size()) index_of_.resize(rank + 1, -1);
    index_of_[rank] = static_cast<int32_t>(i);
  }
}

int32_t LocalHost::index_of(Rank world_rank) const {
  const auto rank = static_cast<size_t>(world_rank);
  return rank < index_of_.size() ? index_of_[rank] : -1;
}

void LocalHost::ring(size_t peer) const {
  std::atomic_ref<uint32_t> sleeper(control_block_in(ranks_[peer].control_block).sleep.waits_for);
  const uint32_t awaited = sleeper.load(std::memory_order_seq_cst);
  if (awaited != kAsleepForAnyone && awaited != asleep_for(me_)) return;
  // It may wait for another rank by now. Then it wakes in vain, looks again and announces its sleep anew.
  if (sleeper.exchange(kAwake) == kAwake) return;
  if (!ranks_[peer].doorbell.is_open()) return ringer_(ranks_[peer].world_rank);
  const uint64_t one = 1;
  // A full counter also wakes the peer. If the peer is gone, its channel reports the loss.
  [[maybe_unused]] const ssize_t written = write(ranks_[peer].doorbell.get(), &one, sizeof(one));
}

// A peer that has announced a later call is done with this one, because it ends one call before it
// starts the next.
bool LocalHost::has_finished(size_t peer, uint64_t sequence) const {
  const Mailbox& mailbox = mailbox_of(peer);
  return load_shared(mailbox.progress.finished) >= sequence ||
         std::max(load_shared(mailbox.posts[0].arrived), load_shared(mailbox.posts[1].arrived)) >=
             arrival_of(sequence + 1);
}

void LocalHost::announce_sleep(std::optional<size_t> peer) const {
  std::atomic_ref<uint32_t>(my_control_block().sleep.waits_for)
      .store(peer ? asleep_for(*peer) : kAsleepForAnyone, std::memory_order_seq_cst);
}

void LocalHost::announce_waking() const {
  std::atomic_ref<uint32_t>(my_control_block().sleep.waits_for).store(kAwake, std::memory_order_relaxed);
}

}  // namespace rueda::backend
