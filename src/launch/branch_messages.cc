#include "launch/branch_messages.h"

#include "rueda/base/limits.h"

namespace rueda::launch {
namespace {

constexpr size_t kMaxWord = 64 << 10, kMaxSshArguments = 1024;

template <class T>
Result<T> whole(const ByteReader& reader, T value) {
  if (reader.is_ok() && reader.is_at_end()) return value;
  return Status(Code::kInternal, "a malformed message about an agent's branch arrived");
}

}  // namespace

Bytes encode(const BranchOrder& order) {
  ByteWriter writer;
  writer.put(order.branch);
  writer.put_string(order.host);
  writer.put_string(order.binary);
  writer.put(static_cast<int32_t>(order.ssh.port));
  writer.put_string(order.ssh.identity_file);
  writer.put_string(order.ssh.config_file);
  writer.put_list(order.ssh.args, [](ByteWriter& to, const std::string& word) { to.put_string(word); });
  writer.put(static_cast<int32_t>(order.ssh.connect_timeout_s));
  writer.put_string(order.ssh.program);
  return std::move(writer).take();
}

Result<BranchOrder> decode_branch_order(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  BranchOrder order;
  order.branch = reader.get<int32_t>();
  order.host = reader.get_string(kMaxWord);
  order.binary = reader.get_string(kMaxWord);
  order.ssh.port = reader.get<int32_t>();
  order.ssh.identity_file = reader.get_string(kMaxWord);
  order.ssh.config_file = reader.get_string(kMaxWord);
  order.ssh.args =
      reader.get_list(kMaxSshArguments, [](ByteReader& from) { return from.get_string(kMaxWord); });
  order.ssh.connect_timeout_s = reader.get<int32_t>();
  order.ssh.program = reader.get_string(kMaxWord);
  if (order.branch < 0 || order.host.empty() || order.ssh.program.empty()) reader.fail();
  return whole(reader, std::move(order));
}

Bytes encode(const BranchPart& part) {
  ByteWriter writer;
  writer.put(part.branch);
  writer.put(part.stream);
  writer.put_raw(part.bytes);
  return std::move(writer).take();
}

Result<BranchPart> decode_branch_part(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  BranchPart part;
  part.branch = reader.get<int32_t>();
  part.stream = reader.get<Stream>();
  if (part.branch < 0 || (part.stream != Stream::kStdout && part.stream != Stream::kStderr)) reader.fail();
  constexpr size_t kHead = sizeof(part.branch) + sizeof(part.stream);
  if (reader.is_ok()) part.bytes = reader.get_raw(payload.size() - kHead);
  return whole(reader, part);
}

Bytes encode(const BranchEnd& end) {
  ByteWriter writer;
  writer.put(end.branch);
  writer.put(end.wait_status);
  writer.put_string(end.trouble);
  return std::move(writer).take();
}

Result<BranchEnd> decode_branch_end(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  BranchEnd end;
  end.branch = reader.get<int32_t>();
  end.wait_status = reader.get<int32_t>();
  end.trouble = reader.get_string(kMaxWord);
  if (end.branch < 0) reader.fail();
  return whole(reader, std::move(end));
}

Bytes for_branch(int32_t branch, std::span<const std::byte> rest) {
  ByteWriter writer;
  writer.put(branch);
  writer.put_raw(rest);
  return std::move(writer).take();
}

Bytes for_all(MessageType type, std::span<const std::byte> payload) {
  ByteWriter writer;
  writer.put(type);
  writer.put_raw(payload);
  return std::move(writer).take();
}

Result<AgentMessage> decode_for_all(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  AgentMessage message{.type = reader.get<MessageType>(), .payload = {}};
  if (message.type == MessageType::kForAll) reader.fail();
  if (!reader.is_ok()) return Status(Code::kInternal, "a malformed message for all agents arrived");
  const std::span<const std::byte> rest = payload.subspan(sizeof(MessageType));
  message.payload.assign(rest.begin(), rest.end());
  return message;
}

}  // namespace rueda::launch
