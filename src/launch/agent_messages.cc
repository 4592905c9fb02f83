#include "launch/agent_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rueda/base/limits.h"

namespace rueda::launch {
namespace {

constexpr size_t kMaxText = kMaxMessageBytes;
constexpr size_t kMaxVariables = 1 << 20, kMaxArguments = 1 << 20;
constexpr size_t kMaxSkippedBytes = 64 << 10;

void put_variables(ByteWriter& writer, const Variables& variables) {
  writer.put_list(variables, [](ByteWriter& to, const auto& variable) {
    to.put_string(variable.first);
    to.put_string(variable.second);
  });
}

Variables get_variables(ByteReader& reader) {
  return reader.get_list(kMaxVariables, [](ByteReader& from) {
    std::string name = from.get_string(kMaxText);
    return std::pair(std::move(name), from.get_string(kMaxText));
  });
}

void put_rank(ByteWriter& writer, const RankJob& rank) {
  writer.put(rank.rank);
  put_variables(writer, rank.env);
}

RankJob get_rank(ByteReader& reader) {
  RankJob rank;
  rank.rank = reader.get<int32_t>();
  rank.env = get_variables(reader);
  return rank;
}

template <class T>
Result<T> checked(const ByteReader& reader, T value, std::string_view what) {
  if (!reader.is_ok() || !reader.is_at_end())
    return Status(Code::kInternal,
                  fmt::format("a malformed {} message arrived between launcher and agent", what));
  return value;
}

}  // namespace

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

Bytes encode_message(MessageType type, std::span<const std::byte> payload) {
  RUEDA_CHECK(payload.size() < kMaxMessageBytes, "a message is bounded by its sender");
  ByteWriter writer;
  writer.put(static_cast<uint32_t>(payload.size() + 1));
  writer.put(type);
  writer.put_raw(payload);
  return std::move(writer).take();
}

Bytes encode(const Hello& hello) {
  ByteWriter writer;
  writer.put(hello.protocol);
  writer.put_string(hello.release);
  writer.put_string(hello.host);
  writer.put(hello.pid);
  writer.put_string(hello.private_dir);
  writer.put(hello.free_port);
  writer.put_string(hello.launcher_address);
  writer.put_string(hello.own_address);
  writer.put(hello.slots);
  return std::move(writer).take();
}

Result<Hello> decode_hello(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Hello hello;
  hello.protocol = reader.get<int32_t>();
  hello.release = reader.get_string(256);
  hello.host = reader.get_string(256);
  hello.pid = reader.get<int32_t>();
  hello.private_dir = reader.get_string(4096);
  hello.free_port = reader.get<int32_t>();
  hello.launcher_address = reader.get_string(256);
  hello.own_address = reader.get_string(256);
  hello.slots = reader.get<int32_t>();
  if (hello.slots < 0 || hello.slots > kMaxRanks) reader.fail();
  return checked(reader, std::move(hello), "hello");
}

Bytes encode(const Job& job) {
  ByteWriter writer;
  writer.put_list(job.argv, [](ByteWriter& to, const std::string& argument) { to.put_string(argument); });
  writer.put_string(job.cwd);
  put_variables(writer, job.env);
  writer.put_list(job.ranks, put_rank);
  writer.put_string(job.secret);
  writer.put_string(job.stage);
  writer.put(job.ping_timeout_ms);
  writer.put(job.grace_ms);
  writer.put(static_cast<uint8_t>(job.binds_cores));
  writer.put(static_cast<uint8_t>(job.collects_metrics));
  writer.put(static_cast<uint8_t>(job.is_elastic));
  return std::move(writer).take();
}

Result<Job> decode_job(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Job job;
  job.argv = reader.get_list(kMaxArguments, [](ByteReader& from) { return from.get_string(kMaxText); });
  job.cwd = reader.get_string(kMaxText);
  job.env = get_variables(reader);
  job.ranks = reader.get_list(kMaxRanks, get_rank);
  job.secret = reader.get_string(256);
  job.stage = reader.get_string(kMaxText);
  job.ping_timeout_ms = reader.get<int32_t>();
  job.grace_ms = reader.get<int64_t>();
  job.binds_cores = reader.get<uint8_t>() != 0;
  job.collects_metrics = reader.get<uint8_t>() != 0;
  job.is_elastic = reader.get<uint8_t>() != 0;
  if (job.argv.empty() || (job.ranks.empty() && !job.is_elastic)) reader.fail();
  return checked(reader, std::move(job), "job");
}

Bytes encode(const RankJob& rank) {
  ByteWriter writer;
  put_rank(writer, rank);
  return std::move(writer).take();
}

Result<RankJob> decode_rank_job(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  RankJob rank = get_rank(reader);
  if (rank.rank < 0) reader.fail();
  return checked(reader, std::move(rank), "start");
}

Bytes encode(const Exit& exit) {
  ByteWriter writer;
  writer.put(exit.rank);
  writer.put(exit.pid);
  writer.put(exit.exit_code);
  writer.put(exit.signal);
  writer.put(exit.at);
  writer.put(exit.was_stopped);
  writer.put(exit.was_out_of_memory);
  writer.put_string(exit.trouble);
  return std::move(writer).take();
}

Result<Exit> decode_exit(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Exit exit;
  exit.rank = reader.get<int32_t>();
  exit.pid = reader.get<int32_t>();
  exit.exit_code = reader.get<int32_t>();
  exit.signal = reader.get<int32_t>();
  exit.at = reader.get<int64_t>();
  exit.was_stopped = reader.get<uint8_t>();
  exit.was_out_of_memory = reader.get<int8_t>();
  exit.trouble = reader.get_string(1 << 16);
  return checked(reader, std::move(exit), "exit");
}

Bytes encode(const ViewChangeFor& one) {
  ByteWriter writer;
  writer.put(one.rank);
  writer.put(one.change.round);
  writer.put(one.change.phase);
  writer.put(one.change.commit);
  for (const bool flag : {one.change.are_hosts_added, one.change.are_hosts_removed, one.change.does_leave})
    writer.put(static_cast<uint8_t>(flag));
  return std::move(writer).take();
}

Result<ViewChangeFor> decode_view_change(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  ViewChangeFor one;
  one.rank = reader.get<int32_t>();
  one.change.round = reader.get<uint16_t>();
  one.change.phase = reader.get<status::ViewChange::Phase>();
  one.change.commit = reader.get<int64_t>();
  for (bool* const flag :
       {&one.change.are_hosts_added, &one.change.are_hosts_removed, &one.change.does_leave})
    *flag = reader.get<uint8_t>() != 0;
  if (one.change.phase > status::ViewChange::Phase::kConfirmed) reader.fail();
  return checked(reader, one, "view change");
}

Bytes encode(const BoardReport& report) {
  ByteWriter writer;
  writer.put(report.rank);
  writer.put(report.round);
  writer.put(report.commit);
  writer.put(report.answer);
  return std::move(writer).take();
}

Result<BoardReport> decode_board_report(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  BoardReport report;
  report.rank = reader.get<int32_t>();
  report.round = reader.get<uint16_t>();
  report.commit = reader.get<int64_t>();
  report.answer = reader.get<int8_t>();
  return checked(reader, report, "board");
}

Bytes encode(const Question& question) {
  ByteWriter writer;
  writer.put(question.id);
  writer.put_string(status::format_question(question.text));
  return std::move(writer).take();
}

Result<Question> decode_question(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const auto id = reader.get<uint32_t>();
  const std::optional<status::JobQuestion> text = status::parse_question(reader.get_string(256));
  if (!text) reader.fail();
  return checked(reader, Question{.id = id, .text = text.value_or(status::JobQuestion())}, "question");
}

void MessageReader::feed(std::span<const std::byte> bytes) {
  if (read_ > 0 && read_ * 2 >= buffer_.size()) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(read_));
    read_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Status MessageReader::skip_to_magic() {
  const std::string_view all = as_text(buffer_);
  const size_t at = all.find(magic_);
  if (at == std::string_view::npos) {
    skipped_ = all.substr(0, kMaxSkippedBytes);
    if (all.size() <= kMaxSkippedBytes) return Status::ok();
    return {Code::kInternal, "what answered is not an agent of rueda"};
  }
  skipped_ = all.substr(0, at);
  read_ = at + magic_.size();
  magic_.clear();
  return Status::ok();
}

Result<std::optional<AgentMessage>> MessageReader::next() {
  if (!magic_.empty()) {
    if (Status skipped = skip_to_magic(); !skipped.is_ok()) return skipped;
    if (!magic_.empty()) return std::optional<AgentMessage>();
  }
  const std::span<const std::byte> rest = std::span<const std::byte>(buffer_).subspan(read_);
  if (rest.size() < sizeof(uint32_t)) return std::optional<AgentMessage>();
  ByteReader reader(rest);
  const auto length = reader.get<uint32_t>();
  if (length == 0 || length > kMaxMessageBytes)
    return Status(
        Code::kInternal,
        fmt::format("a message of {} bytes, which is too long, arrived between launcher and agent", length));
  if (rest.size() < sizeof(uint32_t) + length) return std::optional<AgentMessage>();
  AgentMessage message;
  message.type = reader.get<MessageType>();
  const std::span<const std::byte> payload = reader.get_raw(length - 1);
  message.payload.assign(payload.begin(), payload.end());
  read_ += sizeof(uint32_t) + length;
  return std::optional<AgentMessage>(std::move(message));
}

}  // namespace rueda::launch
