#include "rueda/runtime/peer_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "rueda/base/limits.h"

namespace rueda::runtime {
namespace {

// Each part carries it: {u32 parts in all}.
constexpr size_t kPartHeaderBytes = sizeof(uint32_t);
constexpr size_t kMostParts = 64;             // 64 MiB: 65,536 ranks with 1 KiB each
constexpr size_t kMostSharedBytes = 1 << 20;  // of one rank

Status malformed_table() {
  return {Code::kPermissionDenied,
          "rank 0 published a table of the ranks that this release cannot read: all ranks must run the same "
          "release of rueda"};
}

// Moves what only this rank can say from one to the other. The rest is often the same on all ranks of a host.
void move_own(PeerInfo& from, PeerInfo& to) {
  to.pid = std::exchange(from.pid, 0);
  to.began = std::exchange(from.began, 0);
  to.local_rank = std::exchange(from.local_rank, -1);
  to.addresses = std::exchange(from.addresses, {});
}

}  // namespace

Bytes encode_table(const std::vector<PeerInfo>& all) {
  std::map<Bytes, uint32_t> numbers;
  ByteWriter shared, own;
  for (PeerInfo info : all) {
    PeerInfo mine;
    move_own(info, mine);
    const auto [at, is_new] = numbers.try_emplace(encode(info), static_cast<uint32_t>(numbers.size()));
    if (is_new) shared.put_vector(at->first);
    own.put(at->second);
    own.put(mine.pid);
    own.put(mine.began);
    own.put(mine.local_rank);
    put_addresses(own, mine.addresses);
  }
  ByteWriter out;
  out.put(static_cast<uint32_t>(numbers.size()));
  out.put_raw(shared.bytes());
  out.put(static_cast<uint32_t>(all.size()));
  out.put_raw(own.bytes());
  return std::move(out).take();
}

Result<std::vector<PeerInfo>> decode_table(std::span<const std::byte> raw) {
  ByteReader in(raw);
  const auto get_shared = [](ByteReader& from) {
    Result<PeerInfo> info = decode_peer_info(from.get_vector<std::byte>(kMostSharedBytes));
    if (!info.is_ok()) from.fail();
    return info.is_ok() ? std::move(info).value() : PeerInfo();
  };
  const std::vector<PeerInfo> shared = in.get_list(kMaxRanks, get_shared);
  const auto get_info = [&shared](ByteReader& from) {
    const auto number = from.get<uint32_t>();
    if (number >= shared.size()) from.fail();
    PeerInfo info = from.is_ok() ? shared[number] : PeerInfo();
    info.pid = from.get<int64_t>();
    info.began = from.get<int64_t>();
    info.local_rank = from.get<Rank>();
    info.addresses = get_addresses(from);
    return info;
  };
  std::vector<PeerInfo> all = in.get_list(kMaxRanks, get_info);
  if (!in.is_ok() || !in.is_at_end()) return malformed_table();
  return all;
}

std::vector<Bytes> parts_of(std::span<const std::byte> table, size_t most_bytes) {
  const size_t room = most_bytes - kPartHeaderBytes;
  const size_t count = std::max<size_t>((table.size() + room - 1) / room, 1);
  std::vector<Bytes> parts;
  for (size_t i = 0; i < count; ++i) {
    ByteWriter part;
    part.put(static_cast<uint32_t>(count));
    part.put_raw(table.subspan(i * room, std::min(room, table.size() - i * room)));
    parts.push_back(std::move(part).take());
  }
  return parts;
}

Result<size_t> append_part(Bytes& table, std::span<const std::byte> part) {
  ByteReader in(part);
  const size_t count = in.get<uint32_t>();
  if (!in.is_ok() || count == 0 || count > kMostParts) return malformed_table();
  const std::span<const std::byte> bytes = part.subspan(kPartHeaderBytes);
  table.insert(table.end(), bytes.begin(), bytes.end());
  return count;
}

}  // namespace rueda::runtime
