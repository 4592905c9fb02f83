// The peer info of all ranks, as rank 0 publishes it: what several ranks say alike stands in it once. So an
// init of n ranks reads 2 n values from the store instead of n² ones. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/runtime/peer_info.h"

namespace rueda::runtime {

Bytes encode_table(const std::vector<PeerInfo>& all);
Result<std::vector<PeerInfo>> decode_table(std::span<const std::byte> raw);

// A table may be longer than a value of the store. The first of its parts says how many there are.
std::vector<Bytes> parts_of(std::span<const std::byte> table, size_t most_bytes);
// To be given the parts one after the other. Returns how many there are in all.
Result<size_t> append_part(Bytes& table, std::span<const std::byte> part);

}  // namespace rueda::runtime
