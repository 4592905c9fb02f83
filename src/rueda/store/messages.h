// What client and server of a TCP store tell each other after the handshake. Each command and each reply is
// one message, preceded by its length. A client sends one command at a time. The reply to kGet may take as
// long as the client has said.
#pragma once

#include <cstdint>
#include <string>

#include "rueda/base/bytes.h"
#include "rueda/base/limits.h"
#include "rueda/base/status.h"

namespace rueda::store {

// Compared in the handshake, because a launcher and a library of one release may be of different builds. To
// be raised with each change of the commands and replies here, of relay_frame.h, of entries.h, and of the
// values that a launcher and ranks exchange.
inline constexpr uint16_t kStoreProtocol = 2;

// Part of the wire format: append only.
enum class Op : uint8_t {
  kSet = 1,
  kGet = 2,
  kTryGet = 3,
  kAdd = 4,
  kRemovePrefix = 5,
  kCompareAndSet = 6,
  // What the relay of a host answers for its ranks together (host_relay.h).
  kShare = 7,     // get or try_get
  kGive = 8,      // an entry of a table
  kAnnounce = 9,  // the same, answered before the store has it
};

struct Command {
  Op op = Op::kGet;
  std::string key;
  std::string value;
  int64_t amount = 0;      // kAdd: to add; kGet, kShare: the longest wait, in nanoseconds; kGive: the rank
  std::string expected{};  // kCompareAndSet only
  // kShare: how old the answer may be, in nanoseconds; kGive: how many ranks its host has, 0 = unknown.
  int64_t limit = 0;
};

inline bool has_limit(Op op) { return op >= Op::kShare; }

struct Reply {
  Code code = Code::kOk;
  std::string text;  // the value, or the reason why there is none
  int64_t sum = 0;
};

inline constexpr size_t kLengthBytes = sizeof(uint32_t);
inline constexpr size_t kMaxStoreMessageBytes =
    kMaxStoreKeyBytes + kMaxStoreValueBytes + 64;  // 64: fixed fields

inline Bytes with_length(const Bytes& body) {
  ByteWriter message;
  message.put(static_cast<uint32_t>(body.size()));
  message.put_raw(body);
  return std::move(message).take();
}

inline Bytes encode(const Command& command) {
  ByteWriter body;
  body.put(command.op);
  body.put_string(command.key);
  body.put_string(command.value);
  body.put(command.amount);
  if (command.op == Op::kCompareAndSet) body.put_string(command.expected);
  if (has_limit(command.op)) body.put(command.limit);
  return with_length(body.bytes());
}

inline Bytes encode(const Reply& reply) {
  ByteWriter body;
  body.put(static_cast<uint8_t>(reply.code));
  body.put_string(reply.text);
  body.put(reply.sum);
  return with_length(body.bytes());
}

inline Status malformed_message() { return {Code::kPermissionDenied, "a store message is malformed"}; }

// The size of the message at the front of bytes, including its length field; 0 while too few bytes are there.
// Fails if the length is impossible.
inline Result<size_t> message_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) return size_t{0};
  const auto size = ByteReader(bytes).get<uint32_t>();
  if (size == 0 || size > kMaxStoreMessageBytes) return malformed_message();
  return kLengthBytes + size;
}

inline Result<Command> decode_command(std::span<const std::byte> body) {
  ByteReader reader(body);
  Command command;
  command.op = reader.get<Op>();
  command.key = reader.get_string(kMaxStoreKeyBytes);
  command.value = reader.get_string(kMaxStoreValueBytes);
  command.amount = reader.get<int64_t>();
  if (command.op == Op::kCompareAndSet) command.expected = reader.get_string(kMaxStoreValueBytes);
  if (has_limit(command.op)) command.limit = reader.get<int64_t>();
  if (!reader.is_ok() || !reader.is_at_end() || command.op < Op::kSet || command.op > Op::kAnnounce)
    return malformed_message();
  return command;
}

inline Result<Reply> decode_reply(std::span<const std::byte> body) {
  ByteReader reader(body);
  Reply reply;
  reply.code = static_cast<Code>(reader.get<uint8_t>());
  reply.text = reader.get_string(kMaxStoreValueBytes);
  reply.sum = reader.get<int64_t>();
  if (!reader.is_ok() || !reader.is_at_end() || reply.code > Code::kStalled) return malformed_message();
  return reply;
}

}  // namespace rueda::store
