#include "bench/placement.h"

#include <algorithm>
#include <deque>

namespace rueda::bench {
namespace {

// A tensor with at least this many elements is cut over all servers. The limit of other systems is higher (a
// million in MXNet). But the engine runs one alltoall after the other, so tensors of one server each would
// use one link at a time and make parameter servers look worse than they are.
constexpr int64_t kCutFrom = 16'384;

}  // namespace

int64_t Transfer::elements() const {
  int64_t sum = 0;
  for (const ServerPiece& piece : pieces) sum += piece.count;
  return sum;
}

std::vector<std::vector<int32_t>> assign_shards(std::span<const int64_t> counts, int servers) {
  std::vector<int64_t> load(static_cast<size_t>(servers));
  std::vector<std::vector<int32_t>> shards;
  for (const int64_t count : counts) {
    std::vector<int32_t> shard(load.size());
    if (count >= kCutFrom) {
      for (size_t server = 0; server < load.size(); ++server)
        shard[server] = static_cast<int32_t>(count * static_cast<int64_t>(server + 1) / servers -
                                             count * static_cast<int64_t>(server) / servers);
    } else {
      const auto least = std::ranges::min_element(load) - load.begin();
      shard[static_cast<size_t>(least)] = static_cast<int32_t>(count);
    }
    for (size_t server = 0; server < load.size(); ++server) load[server] += shard[server];
    shards.push_back(std::move(shard));
  }
  return shards;
}

std::vector<Transfer> cut_transfers(std::span<const int64_t> counts, int servers) {
  std::vector<Transfer> transfers;
  for (const std::vector<int32_t>& shards : assign_shards(counts, servers)) {
    Transfer transfer{.last_tensor = transfers.size()};
    int64_t first = 0;
    for (int server = 0; server < servers; ++server) {
      const int64_t count = shards[static_cast<size_t>(server)];
      if (count > 0)
        transfer.pieces.push_back(
            {.tensor = transfers.size(), .first = first, .count = count, .server = server});
      first += count;
    }
    transfers.push_back(std::move(transfer));
  }
  return transfers;
}

int server_of(size_t tensor, size_t tensors, int servers) {
  return static_cast<int>((tensors - 1 - tensor) % static_cast<size_t>(servers));
}

std::vector<Transfer> whole_transfers(std::span<const int64_t> counts, int servers,
                                      std::span<const double> ready_ms, double ms_per_element) {
  std::vector<std::deque<ServerPiece>> waiting(static_cast<size_t>(servers));  // for each server
  const auto is_idle = [&] { return std::ranges::all_of(waiting, &std::deque<ServerPiece>::empty); };
  std::vector<Transfer> transfers;
  double now_ms = 0;
  for (size_t next = 0; next < counts.size() || !is_idle();) {
    if (is_idle()) now_ms = std::max(now_ms, ready_ms[next]);
    for (; next < counts.size() && ready_ms[next] <= now_ms; ++next) {
      const int server = server_of(next, counts.size(), servers);
      waiting[static_cast<size_t>(server)].push_back(
          {.tensor = next, .first = 0, .count = counts[next], .server = server});
    }
    Transfer transfer;
    int64_t longest = 0;
    for (std::deque<ServerPiece>& queue : waiting) {
      int64_t taken = 0;
      while (!queue.empty() && taken < kMostOfServer) {
        ServerPiece& piece = queue.front();
        const int64_t count = std::min(piece.count, kMostOfServer - taken);
        transfer.pieces.push_back(
            {.tensor = piece.tensor, .first = piece.first, .count = count, .server = piece.server});
        transfer.last_tensor = std::max(transfer.last_tensor, piece.tensor);
        taken += count;
        piece.first += count;
        piece.count -= count;
        if (piece.count == 0) queue.pop_front();
      }
      longest = std::max(longest, taken);
    }
    now_ms += static_cast<double>(longest) * ms_per_element;
    transfers.push_back(std::move(transfer));
  }
  return transfers;
}

}  // namespace rueda::bench
