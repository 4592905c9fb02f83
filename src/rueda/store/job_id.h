// Names derived from what a launcher says: public job ids, and ports that processes can agree on
// without a message.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "rueda/base/handshake.h"
#include "rueda/store/hex.h"

namespace rueda::store {

inline constexpr size_t kMaxJobBytes = 64;
inline constexpr size_t kSeedPorts = 16;

inline std::array<std::byte, 32> digest_of(std::string_view salt, std::string_view text) {
  return hmac_sha256(std::as_bytes(std::span(salt)), std::as_bytes(std::span(text)));
}

// The text itself if a file name may contain it, otherwise a digest of it.
inline std::string make_job_id(std::string_view text) {
  const auto is_plain = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (!text.empty() && text.front() != '.' && text.size() <= kMaxJobBytes &&
      std::ranges::all_of(text, is_plain))
    return std::string(text);
  const auto digest = digest_of("rueda job id", text);
  return "job-" + to_hex(std::span(digest).first(16));
}

// Different jobs on one host usually get different ports. There are 16 of them, so a port in common
// does no harm. Ranks dial all of them, whoever listens there, and some programs end when a stranger
// connects: so they lie below the ports that Linux gives to programs that ask for any port (from 32768 on),
// such as the launchers of MPI, and below the NodePorts of Kubernetes (from 30000 on).
inline std::array<int, kSeedPorts> seed_ports(std::string_view job) {
  constexpr int kFirst = 20'000, kCount = 10'000;
  const auto digest = digest_of("rueda seed ports", job);
  uint32_t first = 0, stride = 0;
  std::memcpy(&first, digest.data(), sizeof(first));
  std::memcpy(&stride, digest.data() + sizeof(first), sizeof(stride));
  stride = stride % 311 * 2 + 1;  // below kCount / kSeedPorts, so the sixteen differ
  std::array<int, kSeedPorts> ports{};
  for (uint32_t i = 0; i < kSeedPorts; ++i)
    ports[i] = kFirst + static_cast<int>((uint64_t{first} + uint64_t{i} * stride) % kCount);
  return ports;
}

}  // namespace rueda::store
