#include "rueda/runtime/local_ranks.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "rueda/base/listing.h"
#include "rueda/base/memory_file.h"
#include "rueda/runtime/transports.h"

namespace rueda::runtime {
namespace {

constexpr size_t kMinArenaBytes = 4096;
constexpr size_t kMaxArenaBytes = size_t{1} << 46;
constexpr size_t kMaxListedRanks = 6;

// Where this thread runs now. A launcher that binds ranks has done so by now, and the kernel keeps an unbound
// one near its memory. Only speed depends on it. Not by getcpu(), which glibc 2.28 of the wheels has not yet.
int32_t numa_node() {
  unsigned node = 0;
  return syscall(SYS_getcpu, nullptr, &node, nullptr) == 0 ? static_cast<int32_t>(node) : 0;
}

bool are_few(size_t ranks) { return ranks <= backend::kRungByDescriptor; }

// Huge pages would be larger than what most ranks touch of a block.
void avoid_huge_pages(const memory::SharedMemory& memory) {
  madvise(memory.base(), memory.bytes(), MADV_NOHUGEPAGE);
}

// What keeps the pointers of a LocalHost valid.
struct Kept {
  memory::SharedMemory memory;
  std::shared_ptr<memory::Arena> arena;
};

}  // namespace

Result<SharedWithHost> SharedWithHost::create(std::shared_ptr<memory::Arena> arena, int doorbell,
                                              Rank ranks) {
  const size_t most = std::min(static_cast<size_t>(ranks), backend::kMaxLocalRanks);
  const Result<UniqueFd> tried = make_memory_file(backend::host_memory_bytes(most));
  if (!tried.is_ok()) return tried.status();
  SharedWithHost self;
  self.is_possible_ = true;
  self.arena_ = std::move(arena);
  self.doorbell_ = doorbell;
  return self;
}

void SharedWithHost::describe(PeerInfo& mine) const {
  mine.has_arena = arena_ != nullptr;
  mine.numa_node = numa_node();
}

std::vector<int> SharedWithHost::descriptors(bool is_few) const {
  std::vector<int> mine;
  if (memory_.fd() >= 0) mine.push_back(memory_.fd());
  if (is_few) mine.push_back(doorbell_);
  if (arena_) mine.push_back(arena_->memory().fd());
  return mine;
}

Status SharedWithHost::offer(Links& links, Rank me, const std::vector<PeerInfo>& all) {
  if (!is_possible_) return Status::ok();
  Result<std::vector<Rank>> ranks = links.routes().host_ranks();
  if (!ranks.is_ok()) return ranks.status();
  const size_t count = ranks.value().size();
  if (count < 2 || count > backend::kMaxLocalRanks) return Status::ok();
  ranks_ = std::move(ranks).value();
  if (me == ranks_.front()) {
    Result<memory::SharedMemory> made = memory::SharedMemory::create(backend::host_memory_bytes(count));
    if (!made.is_ok()) return made.status();
    memory_ = std::move(made).value();
  }
  transport::HostShare share{.ranks = ranks_, .mine = descriptors(are_few(count))};
  for (const Rank rank : ranks_) {
    const size_t memory = rank == ranks_.front() ? 1 : 0, doorbell = are_few(count) ? 1 : 0;
    const size_t arena = all[static_cast<size_t>(rank)].has_arena ? 1 : 0;
    share.counts.push_back(memory + doorbell + arena);
  }
  return links.routes().share(std::move(share));
}

// In the order of descriptors().
Status SharedWithHost::take_from(Rank rank, Links& links, backend::HostRank& local) {
  std::vector<UniqueFd> given = links.routes().take_shared(rank);
  auto next = given.begin();
  if (rank == ranks_.front()) {
    const size_t bytes = backend::host_memory_bytes(ranks_.size());
    Result<memory::SharedMemory> memory = memory::SharedMemory::adopt(std::move(*next++), bytes, bytes);
    if (!memory.is_ok()) return memory.status();
    memory_ = std::move(memory).value();
  }
  if (are_few(ranks_.size())) local.doorbell = std::move(*next++);
  if (next == given.end()) return Status::ok();
  Result<memory::SharedMemory> arena =
      memory::SharedMemory::adopt(std::move(*next), kMinArenaBytes, kMaxArenaBytes);
  if (!arena.is_ok()) return arena.status();
  local.adopted_arena = std::move(arena).value();
  local.adopted_arena.close_fd();
  return Status::ok();
}

Result<std::shared_ptr<backend::LocalHost>> SharedWithHost::join(Links& links, Rank me,
                                                                 const std::vector<PeerInfo>& all) && {
  if (ranks_.empty()) return std::shared_ptr<backend::LocalHost>();
  std::vector<backend::HostRank> ranks(ranks_.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].world_rank = ranks_[i];
    ranks[i].numa_node = all[static_cast<size_t>(ranks_[i])].numa_node;
    if (ranks_[i] == me) continue;
    if (Status s = take_from(ranks_[i], links, ranks[i]); !s.is_ok()) return s;
  }
  const auto mine = std::ranges::find(ranks_, me) - ranks_.begin();
  auto& my_rank = ranks[static_cast<size_t>(mine)];
  my_rank.arena = arena_ ? &arena_->memory() : nullptr;
  memory_.close_fd();
  if (!are_few(ranks.size())) avoid_huge_pages(memory_);
  const auto kept = std::make_shared<Kept>(Kept{std::move(memory_), std::move(arena_)});
  std::byte* const base = kept->memory.base();
  for (size_t i = 0; i < ranks.size(); ++i)
    ranks[i].control_block = backend::control_block_at(base, ranks.size(), i);
  transport::Transport* const transport = links.routes().of_host(ranks_);
  links.routes().watch_over(ranks_, backend::host_words_in(base, ranks.size()), kept);
  return std::make_shared<backend::LocalHost>(std::move(ranks), static_cast<size_t>(mine), kept,
                                              [transport](Rank rank) { transport->ring(rank); });
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
