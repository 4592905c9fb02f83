// How the clients of several processes share one connection to a TCP store: whatever a client and the store
// say to each other is cut into frames, each with the number of the client. A frame without bytes says that
// the client has gone. Pure.
//
// Example: on one connection, client 7 asks for a key that is not there yet, and client 8 sets another one.
// The store answers 8 at once, and 7 later: they do not wait for each other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "rueda/base/bytes.h"
#include "rueda/store/messages.h"

namespace rueda::store {

// The channel in the handshake of a connection that carries frames. Others carry the messages of one client.
inline constexpr uint16_t kRelayChannel = 1;
inline constexpr size_t kMaxFrameBytes = 64 << 10;
inline constexpr size_t kMaxRelayed = 4096;  // clients on one connection

struct RelayFrame {
  uint32_t client = 0;
  std::span<const std::byte> bytes;

  [[nodiscard]] size_t size() const { return 2 * sizeof(uint32_t) + bytes.size(); }
};

// As many frames as these bytes need; one for no bytes.
inline void append_frames(Bytes& out, uint32_t client, std::span<const std::byte> bytes) {
  do {
    const auto part = bytes.first(std::min(bytes.size(), kMaxFrameBytes));
    ByteWriter frame;
    frame.put(static_cast<uint32_t>(part.size()));
    frame.put(client);
    frame.put_raw(part);
    const Bytes made = std::move(frame).take();
    out.insert(out.end(), made.begin(), made.end());
    bytes = bytes.subspan(part.size());
  } while (!bytes.empty());
}

// The frame at the front of `in`, which it points into; empty while it is not whole.
inline Result<std::optional<RelayFrame>> first_frame(std::span<const std::byte> in) {
  ByteReader reader(in);
  const auto size = reader.get<uint32_t>();
  const auto client = reader.get<uint32_t>();
  if (!reader.is_ok()) return std::optional<RelayFrame>();
  if (size > kMaxFrameBytes) return malformed_message();
  const RelayFrame frame{client, in.subspan(2 * sizeof(uint32_t), std::min<size_t>(size, in.size() - 8))};
  return frame.bytes.size() == size ? std::optional(frame) : std::nullopt;
}

}  // namespace rueda::store
