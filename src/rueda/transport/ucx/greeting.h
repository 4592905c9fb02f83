// What the two ends of a proven socket tell each other: the token that messages to this end must carry, and
// the address of this end's UCX worker. Pure.
//
//   {magic u32, address bytes u32, token 16 bytes} and the address
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/transport/ucx/piece.h"

namespace rueda::transport {

// Before an end closes the socket because UCX has lost the other end: so its process has not ended.
inline constexpr std::byte kUcxIsLost{1};
inline constexpr uint32_t kGreetingMagic = 0x58445552;  // "RUDX"
// A worker's address grows with the devices of the host: 100 to 200 bytes for TCP or shared memory.
inline constexpr size_t kMaxWorkerAddress = 32 << 10;

Bytes encode_greeting(const UcxToken& token, std::span<const std::byte> address);

// Collects a greeting that arrives in parts.
class GreetingReader {
 public:
  static constexpr size_t kHeaderBytes = 8 + sizeof(UcxToken);

  // How many bytes are missing; 0 = complete.
  [[nodiscard]] size_t missing() const;
  // At most missing() bytes. Fails as soon as this can be no greeting.
  Status feed(std::span<const std::byte> part);

  // Of a complete greeting.
  [[nodiscard]] UcxToken token() const;
  [[nodiscard]] std::span<const std::byte> address() const;

 private:
  [[nodiscard]] size_t address_bytes() const;
  Bytes bytes_;
};

}  // namespace rueda::transport
