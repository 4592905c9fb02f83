// What a TCP store's client and server say to each other after the handshake: one request, one reply, each a
// counted frame. A client has one request under way; a reply to kGet may be long in coming.
#pragma once

#include <cstdint>
#include <string>

#include "rueda/base/bytes.h"
#include "rueda/base/limits.h"
#include "rueda/base/status.h"

namespace rueda::store {

// Part of the wire: append only.
enum class Op : uint8_t { kSet = 1, kGet = 2, kTryGet = 3, kAdd = 4, kRemovePrefix = 5 };

struct Request {
  Op op = Op::kGet;
  std::string key;
  std::string value;
  int64_t amount = 0;
};

struct Reply {
  Code code = Code::kOk;
  std::string text;  // the value, or why there is none
  int64_t sum = 0;
};

inline constexpr size_t kFrameSizeBytes = sizeof(uint32_t);
inline constexpr size_t kMaxStoreFrameBytes =
    kMaxStoreKeyBytes + kMaxStoreValueBytes + 64;  // 64: fixed fields

inline Bytes framed(const Bytes& body) {
  ByteWriter frame;
  frame.put(static_cast<uint32_t>(body.size()));
  frame.put_raw(body);
  return std::move(frame).take();
}

inline Bytes encode(const Request& request) {
  ByteWriter body;
  body.put(request.op);
  body.put_string(request.key);
  body.put_string(request.value);
  body.put(request.amount);
  return framed(body.bytes());
}

inline Bytes encode(const Reply& reply) {
  ByteWriter body;
  body.put(static_cast<uint8_t>(reply.code));
  body.put_string(reply.text);
  body.put(reply.sum);
  return framed(body.bytes());
}

inline Status malformed_frame() { return {Code::kPermissionDenied, "a store frame is malformed"}; }

// The size of the frame at the front of bytes with its count, 0 while that is not known. A hostile count
// fails.
inline Result<size_t> frame_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameSizeBytes) return size_t{0};
  const auto size = ByteReader(bytes).get<uint32_t>();
  if (size == 0 || size > kMaxStoreFrameBytes) return malformed_frame();
  return kFrameSizeBytes + size;
}

inline Result<Request> decode_request(std::span<const std::byte> body) {
  ByteReader reader(body);
  Request request;
  request.op = reader.get<Op>();
  request.key = reader.get_string(kMaxStoreKeyBytes);
  request.value = reader.get_string(kMaxStoreValueBytes);
  request.amount = reader.get<int64_t>();
  if (!reader.is_ok() || !reader.is_at_end() || request.op < Op::kSet || request.op > Op::kRemovePrefix)
    return malformed_frame();
  return request;
}

inline Result<Reply> decode_reply(std::span<const std::byte> body) {
  ByteReader reader(body);
  Reply reply;
  reply.code = static_cast<Code>(reader.get<uint8_t>());
  reply.text = reader.get_string(kMaxStoreValueBytes);
  reply.sum = reader.get<int64_t>();
  if (!reader.is_ok() || !reader.is_at_end() || reply.code > Code::kStalled) return malformed_frame();
  return reply;
}

}  // namespace rueda::store
