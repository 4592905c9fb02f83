#include "rueda/runtime/local_ranks.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "rueda/base/listing.h"
#include "rueda/runtime/transports.h"

namespace rueda::runtime {
namespace {

constexpr size_t kNoArenaBytes = 4096;  // stands for "no arena": every rank passes three descriptors
constexpr size_t kMaxArenaBytes = size_t{1} << 46;
constexpr size_t kMaxListedRanks = 6;

// Where this thread runs now. A launcher that binds ranks has done so by now, and the kernel keeps an unbound
// one near its memory. Only speed depends on it. Not by getcpu(), which glibc 2.28 of the wheels has not yet.
int32_t numa_node() {
  unsigned node = 0;
  return syscall(SYS_getcpu, nullptr, &node, nullptr) == 0 ? static_cast<int32_t>(node) : 0;
}

}  // namespace

Result<SharedWithHost> SharedWithHost::create(std::shared_ptr<memory::Arena> arena, int doorbell,
                                              Rank ranks) {
  SharedWithHost self;
  self.control_block_bytes_ =
      backend::control_block_bytes(std::min(static_cast<size_t>(ranks), backend::kMaxLocalRanks));
  Result<memory::SharedMemory> control_block = memory::SharedMemory::create(self.control_block_bytes_);
  if (!control_block.is_ok()) return control_block.status();
  self.control_block_ = std::move(control_block).value();
  backend::control_block_in(self.control_block_).numa_node = numa_node();
  if (arena == nullptr) {
    Result<memory::SharedMemory> nothing = memory::SharedMemory::create(kNoArenaBytes);
    if (!nothing.is_ok()) return nothing.status();
    self.no_arena_ = std::move(nothing).value();
  }
  self.arena_ = std::move(arena);
  self.doorbell_ = doorbell;
  return self;
}

std::vector<int> SharedWithHost::descriptors() const {
  return {control_block_.fd(), doorbell_, arena_ ? arena_->memory().fd() : no_arena_.fd()};
}

Status SharedWithHost::offer(Links& links) const {
  if (doorbell_ < 0) return Status::ok();
  const Result<std::vector<Rank>> ranks = links.routes().host_ranks();
  if (!ranks.is_ok()) return ranks.status();
  const size_t count = ranks.value().size();
  return count < 2 || count > backend::kMaxLocalRanks ? Status::ok()
                                                      : links.routes().share_with(ranks.value());
}

Result<std::shared_ptr<backend::LocalHost>> SharedWithHost::join(Links& links, Rank me,
                                                                 const std::vector<PeerInfo>& all) && {
  std::vector<backend::HostRank> ranks;
  size_t my_index = 0;
  for (Rank rank = 0; rank < static_cast<Rank>(all.size()); ++rank) {
    backend::HostRank local;
    local.world_rank = rank;
    if (rank == me) {
      my_index = ranks.size();
      local.control_block = std::move(control_block_);
      local.control_block.close_fd();
      local.arena = arena_ ? &arena_->memory() : nullptr;
      ranks.push_back(std::move(local));
      continue;
    }
    std::vector<UniqueFd> given = links.routes().take_shared(rank);
    if (given.size() != 3) continue;  // not on this host, or without shared memory
    Result<memory::SharedMemory> control_block =
        memory::SharedMemory::adopt(std::move(given[0]), control_block_bytes_, control_block_bytes_);
    if (!control_block.is_ok()) return control_block.status();
    local.control_block = std::move(control_block).value();
    local.control_block.close_fd();
    local.doorbell = std::move(given[1]);
    Result<memory::SharedMemory> arena =
        memory::SharedMemory::adopt(std::move(given[2]), kNoArenaBytes, kMaxArenaBytes);
    if (!arena.is_ok()) return arena.status();
    local.adopted_arena = std::move(arena).value();
    local.adopted_arena.close_fd();
    ranks.push_back(std::move(local));
  }
  if (ranks.size() < 2 || ranks.size() > backend::kMaxLocalRanks)
    return std::shared_ptr<backend::LocalHost>();
  return std::make_shared<backend::LocalHost>(std::move(ranks), my_index, std::move(arena_));
}

std::string warn_of_unshared_memory(const std::vector<PeerInfo>& all) {
  std::vector<Rank> without;
  for (Rank rank = 0; rank < static_cast<Rank>(all.size()); ++rank) {
    const PeerInfo& info = all[static_cast<size_t>(rank)];
    if (info.shared_memory_fault.empty()) continue;
    if (std::ranges::count(all, info.host_key, &PeerInfo::host_key) > 1) without.push_back(rank);
  }
  if (without.empty()) return "";
  const auto name = [&all](Rank rank) {
    return "rank " + std::to_string(rank) + " (host " + all[static_cast<size_t>(rank)].host + ")";
  };
  const PeerInfo& first = all[static_cast<size_t>(without.front())];
  return "ranks that cannot share memory with their host: " + list_first(without, kMaxListedRanks, name) +
         ". Their data goes through the network stack also inside the host, which is slower. Rank " +
         std::to_string(without.front()) + " says: " + first.shared_memory_fault +
         " With RUEDA_TRANSPORTS=tcp nobody asks for shared memory, and this is not said.";
}

std::string warn_of_crowded_hosts(const std::vector<PeerInfo>& all) {
  std::map<std::string_view, size_t> counts;  // of ranks that offer shared memory, by host key
  for (const PeerInfo& info : all)
    if (offers_shared_memory(info)) ++counts[info.host_key];
  for (const PeerInfo& info : all) {
    const size_t count = counts[info.host_key];
    if (count <= backend::kMaxLocalRanks) continue;
    return "host " + info.host + " has " + std::to_string(count) +
           " ranks, but the shared-memory backend serves at most " + std::to_string(backend::kMaxLocalRanks) +
           " per host, so this host runs without it. Collectives are slower and take about 12 MB more per "
           "rank; start fewer ranks per host, each with more threads.";
  }
  return "";
}

}  // namespace rueda::runtime
