// How messages travel over UCX: cut into pieces, one active message each, with this header. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "rueda/base/types.h"

namespace rueda::transport {

// A piece this large is 10 us of a link of 400 Gbit/s; the handshake of its rendezvous takes a few, and
// happens while other pieces are under way. A consumer takes pieces whole, so they must fit into a cache.
inline constexpr size_t kUcxPieceBytes = 512 << 10;
// A piece up to this size is sent at once, and waits in the memory of the receiver. For a larger one, the
// receiver fetches the bytes when it has a place for them.
inline constexpr size_t kUcxEagerBytes = 16 << 10;
// Pieces of a channel that have been sent and that the receiver has not taken. It limits the memory of a
// receiver to kUcxWindow * kUcxEagerBytes per channel.
inline constexpr uint32_t kUcxWindow = 32;

// Random. The receiver of a link chooses it, and passes it to the peer over the proven socket. Whoever does
// not know it is not heard.
using UcxToken = std::array<std::byte, 16>;

enum class PieceKind : uint16_t {
  kHello = 1,   // the first on a link: messages get through
  kData = 2,    // a piece of a message
  kReport = 3,  // only the counts below
  kSync = 4,    // asks for a report as soon as `piece` pieces have arrived
};

struct PieceHeader {
  UcxToken token{};
  uint32_t from = 0;  // rank
  PieceKind kind = PieceKind::kHello;
  uint16_t channel = 0;
  uint32_t piece = 0;     // number of the piece on its channel, from 0, modulo 2^32
  uint32_t arrived = 0;   // pieces of the other direction that have arrived
  uint32_t consumed = 0;  // pieces of the other direction whose place is free again
  uint32_t sequence = 0;  // of the message on its channel
  uint64_t bytes = 0;     // of the message
};
static_assert(sizeof(PieceHeader) == 48);

// Bytes of the piece of a message that begins at `offset`.
constexpr size_t piece_bytes(size_t message_bytes, size_t offset) {
  return std::min(message_bytes - offset, kUcxPieceBytes);
}
constexpr bool is_eager(size_t bytes) { return bytes <= kUcxEagerBytes; }

// Empty if these bytes are no header. The token is not checked.
inline std::optional<PieceHeader> parse_piece_header(std::span<const std::byte> bytes) {
  PieceHeader header;
  if (bytes.size() != sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.kind < PieceKind::kHello || header.kind > PieceKind::kSync) return std::nullopt;
  return header;
}

// Takes the same time wherever the tokens differ.
inline bool is_equal(const UcxToken& a, const UcxToken& b) {
  std::byte difference{};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

}  // namespace rueda::transport
