// The header in front of every message on byte streams (tcp, shm), and the requests that wait at a channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "rueda/base/status.h"
#include "rueda/transport/transport.h"

namespace rueda::transport {

inline constexpr uint32_t kMessageMagic = 0x46445552;  // "RUDF"

// Both sides derive the sizes from the same schedule, so they need not agree on them first. The header only
// proves that they agree.
struct MessageHeader {
  uint32_t magic = kMessageMagic;
  uint32_t sequence = 0;  // of the message on its channel, modulo 2^32
  uint64_t bytes = 0;     // of the payload
};
static_assert(sizeof(MessageHeader) == 16);

struct SendRequest {
  Ticket ticket = 0;
  std::span<const std::byte> bytes;
};

struct RecvRequest {
  Ticket ticket = 0;
  std::byte* into = nullptr;  // null if a consumer takes the bytes
  size_t bytes = 0;
  size_t unit_bytes = 1;
  Consumer* consumer = nullptr;
};

struct ChannelName {
  Rank peer = -1;
  uint16_t channel = 0;
  auto operator<=>(const ChannelName&) const = default;
};

inline std::string to_string(const ChannelName& name) {
  return "rank " + std::to_string(name.peer) + " (channel " + std::to_string(name.channel) + ")";
}

// Ok if the header announces exactly the message that the oldest receive expects.
inline Status check_header(const MessageHeader& got, uint32_t sequence, size_t bytes,
                           const ChannelName& from) {
  if (got.magic != kMessageMagic || got.sequence != sequence)
    return {Code::kInternal, to_string(from) + " broke the protocol: message " + std::to_string(sequence) +
                                 " does not begin where it should."};
  if (got.bytes != bytes)
    return {Code::kMismatch, to_string(from) + " sent " + std::to_string(got.bytes) + " bytes as message " +
                                 std::to_string(sequence) + " where " + std::to_string(bytes) +
                                 " bytes were expected; the ranks run different schedules."};
  return Status::ok();
}

// Users read this, and the number of a channel tells them nothing.
inline Status peer_lost(const ChannelName& name, const std::string& how) {
  return {Code::kPeerLost, "rank " + std::to_string(name.peer) + " " + how + "."};
}

}  // namespace rueda::transport
