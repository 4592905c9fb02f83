#include "rueda/control/message_types.h"

#include <cstring>

#include "rueda/base/limits.h"

namespace rueda::control {
namespace {

constexpr int kFirstType = static_cast<int>(MessageType::kRequests);
constexpr int kLastType = static_cast<int>(MessageType::kProbe);

bool is_for_one_rank(MessageType type) {
  return type == MessageType::kProbe || type == MessageType::kShowStacks;
}

}  // namespace

Status malformed(std::string_view what) {
  return {Code::kInternal, "A control message (" + std::string(what) +
                               ") is malformed; the sender is damaged or of another version."};
}

Bytes encode(const PlanReport& news) {
  ByteWriter writer;
  writer.put(news.plan_number);
  writer.put(news.started);
  writer.put_list(news.under_way, [](ByteWriter& to, const BucketUnderWay& one) {
    to.put(one.bucket);
    to.put_vector(one.sent);
  });
  return std::move(writer).take();
}

Result<PlanReport> decode_plan_news(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  PlanReport news;
  news.plan_number = reader.get<int64_t>();
  news.started = reader.get<int64_t>();
  news.under_way = reader.get_list([&news](ByteReader& from) {
    BucketUnderWay one{.bucket = from.get<int64_t>(), .sent = from.get_vector<int32_t>(kMaxRanks)};
    if (one.bucket < 0 || one.bucket >= news.started) from.fail();
    return one;
  });
  if (news.plan_number < 0 || news.started < 0) reader.fail();
  if (!is_whole(reader)) return malformed("plan news");
  return news;
}

std::array<std::byte, kControlHeaderBytes> encode_header(const ControlHeader& header) {
  std::array<std::byte, kControlHeaderBytes> raw{};
  std::memcpy(raw.data(), &header.bytes, sizeof(header.bytes));
  raw[4] = static_cast<std::byte>(header.type);
  return raw;
}

Result<ControlHeader> decode_header(std::span<const std::byte, kControlHeaderBytes> raw) {
  ByteReader reader(raw);
  ControlHeader header;
  header.bytes = reader.get<uint32_t>();
  const auto type = reader.get<uint8_t>();
  for (int i = 0; i < 3; ++i)
    if (reader.get<uint8_t>() != 0) return malformed("header");
  if (header.bytes > kMaxMessageBytes) return malformed("length");
  if (type < kFirstType || type > kLastType) return malformed("type");
  header.type = static_cast<MessageType>(type);
  return header;
}

Bytes encode(const Heartbeat& heartbeat) {
  ByteWriter writer;
  writer.put(heartbeat.sent);
  writer.put(heartbeat.echo_sent);
  writer.put(heartbeat.echo_received);
  writer.put(static_cast<uint8_t>(heartbeat.clock.has_value()));
  if (heartbeat.clock) {
    writer.put(heartbeat.clock->offset);
    writer.put(heartbeat.clock->round_trip);
  }
  return std::move(writer).take();
}

Result<Heartbeat> decode_heartbeat(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Heartbeat heartbeat;
  heartbeat.sent = reader.get<Nanos>();
  heartbeat.echo_sent = reader.get<Nanos>();
  heartbeat.echo_received = reader.get<Nanos>();
  const auto has_clock = reader.get<uint8_t>();
  if (has_clock > 1) reader.fail();
  if (has_clock == 1)
    heartbeat.clock = ClockOffset{.offset = reader.get<Nanos>(), .round_trip = reader.get<Nanos>()};
  if (!is_whole(reader)) return malformed("heartbeat");
  return heartbeat;
}

Bytes encode_rank(Rank rank) {
  ByteWriter writer;
  writer.put(rank);
  return std::move(writer).take();
}

Rank decode_rank(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const auto rank = reader.get<Rank>();
  return is_whole(reader) ? rank : -1;
}

Bytes encode(const ConnectRequest& request) {
  ByteWriter writer;
  writer.put(request.whom);
  writer.put(request.to);
  return std::move(writer).take();
}

Result<ConnectRequest> decode_connect(std::span<const std::byte> payload, Rank size) {
  ByteReader reader(payload);
  ConnectRequest request;
  request.whom = reader.get<Rank>();
  request.to = reader.get<Rank>();
  const bool is_possible = 0 <= request.to && request.to < request.whom && request.whom < size;
  if (!is_whole(reader) || !is_possible) return malformed("request for a connection");
  return request;
}

Bytes encode(const RoutedMessage& routed) {
  ByteWriter writer;
  writer.put(routed.to);
  writer.put(routed.type);
  writer.put_raw(routed.payload);
  return std::move(writer).take();
}

Result<RoutedMessage> decode_routed(std::span<const std::byte> payload, Rank size) {
  ByteReader reader(payload);
  RoutedMessage routed{.to = reader.get<Rank>(), .type = reader.get<MessageType>(), .payload = {}};
  const bool is_possible = 0 <= routed.to && routed.to < size && is_for_one_rank(routed.type);
  if (!reader.is_ok() || !is_possible) return malformed("routed message");
  const std::span<const std::byte> rest = payload.subspan(sizeof(Rank) + sizeof(MessageType));
  routed.payload.assign(rest.begin(), rest.end());
  return routed;
}

Bytes encode_time(Nanos time) {
  ByteWriter writer;
  writer.put(time);
  return std::move(writer).take();
}

Result<Nanos> decode_time(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const auto time = reader.get<Nanos>();
  if (!is_whole(reader)) return malformed("time");
  return time;
}

Bytes encode(const Abort& abort) {
  ByteWriter writer;
  writer.put(abort.lost);
  writer.put(static_cast<int32_t>(abort.code));
  writer.put_string(std::string_view(abort.why).substr(0, kMaxSentenceBytes));
  writer.put(static_cast<uint8_t>(abort.is_certain));
  return std::move(writer).take();
}

Result<Abort> decode_abort(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Abort abort;
  abort.lost = reader.get<Rank>();
  const auto code = reader.get<int32_t>();
  if (code < 0 || code >= kCodeCount) reader.fail();
  abort.code = static_cast<Code>(code);
  abort.why = reader.get_string(kMaxSentenceBytes);
  const auto is_certain = reader.get<uint8_t>();
  if (is_certain > 1) reader.fail();
  abort.is_certain = is_certain == 1;
  if (!is_whole(reader)) return malformed("abort");
  return abort;
}

}  // namespace rueda::control
