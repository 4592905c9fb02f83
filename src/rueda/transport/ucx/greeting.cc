#include "rueda/transport/ucx/greeting.h"

#include <cstring>

namespace rueda::transport {

Bytes encode_greeting(const UcxToken& token, std::span<const std::byte> address) {
  RUEDA_CHECK(!address.empty() && address.size() <= kMaxWorkerAddress,
              "a worker's address has an impossible size");
  ByteWriter writer;
  writer.put(kGreetingMagic);
  writer.put(static_cast<uint32_t>(address.size()));
  writer.put_raw(token);
  writer.put_raw(address);
  return std::move(writer).take();
}

size_t GreetingReader::address_bytes() const {
  uint32_t bytes = 0;
  std::memcpy(&bytes, bytes_.data() + 4, sizeof(bytes));
  return bytes;
}

size_t GreetingReader::missing() const {
  if (bytes_.size() < kHeaderBytes) return kHeaderBytes - bytes_.size();
  return kHeaderBytes + address_bytes() - bytes_.size();
}

Status GreetingReader::feed(std::span<const std::byte> part) {
  RUEDA_CHECK(part.size() <= missing(), "a greeting ends where its header says");
  bytes_.insert(bytes_.end(), part.begin(), part.end());
  if (bytes_.size() < kHeaderBytes) return Status::ok();
  ByteReader reader(bytes_);
  const auto magic = reader.get<uint32_t>();
  const auto size = reader.get<uint32_t>();
  if (magic != kGreetingMagic || size == 0 || size > kMaxWorkerAddress)
    return {Code::kInternal, "what follows the handshake is no address of a UCX worker"};
  return Status::ok();
}

UcxToken GreetingReader::token() const {
  RUEDA_CHECK(missing() == 0, "the greeting is incomplete");
  UcxToken token;
  std::memcpy(token.data(), bytes_.data() + 8, token.size());
  return token;
}

std::span<const std::byte> GreetingReader::address() const {
  RUEDA_CHECK(missing() == 0, "the greeting is incomplete");
  return std::span(bytes_).subspan(kHeaderBytes);
}

}  // namespace rueda::transport
