#include "rueda/control/messages.h"

#include <string_view>

#include "rueda/base/limits.h"

namespace rueda::control {
namespace {

// The smallest encodings (every string and vector empty): they bound a count before anything is allocated.
constexpr size_t kMinRequestBytes = 77;
constexpr size_t kMinEntryBytes = 16;
constexpr size_t kMinResponseBytes = 69;
constexpr size_t kFlowBytes = 12;
constexpr size_t kMaxTextBytes = 1u << 20;                     // an error or abort sentence
constexpr size_t kMaxRows = kMaxFrameBytes / sizeof(int64_t);  // alltoall: n * n; a frame bounds it
constexpr int kReduceOpCount = static_cast<int>(ReduceOp::kProduct) + 1;
constexpr int kCollectiveCount = static_cast<int>(Collective::kReducescatter) + 1;
constexpr int kMemoryKindCount = static_cast<int>(MemoryKind::kDevice) + 1;
constexpr int kRequestKindCount = static_cast<int>(Request::Kind::kRemoveSet) + 1;
constexpr int kResponseKindCount = static_cast<int>(Response::Kind::kPlanEnd) + 1;
constexpr int kCodeCount = static_cast<int>(Code::kStalled) + 1;
constexpr int kFirstFrameType = static_cast<int>(FrameType::kRequests);
constexpr int kLastFrameType = static_cast<int>(FrameType::kPlanPosition);

// An enum is cast only after its number is known to have a name.
template <class E>
E get_enum(ByteReader& reader, int count) {
  const auto raw = reader.get<uint8_t>();
  if (raw >= count) return reader.fail(), E{};
  return static_cast<E>(raw);
}

template <class E>
void put_enum(ByteWriter& writer, E value) {
  writer.put(static_cast<uint8_t>(value));
}

std::vector<int64_t> get_shape(ByteReader& reader) {
  std::vector<int64_t> shape = reader.get_vector<int64_t>(kMaxDims);
  for (const int64_t dim : shape)
    if (dim < 0) return reader.fail(), std::vector<int64_t>();
  return shape;
}

// A count of items of at least min_bytes each; more cannot be in what is left of the payload.
size_t get_count(ByteReader& reader, size_t payload_bytes, size_t min_bytes) {
  const auto count = reader.get<uint32_t>();
  if (count > payload_bytes / min_bytes) return reader.fail(), 0;
  return count;
}

void put_terms(ByteWriter& writer, const Terms& terms) {
  put_enum(writer, terms.what);
  put_enum(writer, terms.dtype);
  put_enum(writer, terms.op);
  put_enum(writer, terms.memory);
  writer.put(terms.device);
  writer.put(terms.prescale);
  writer.put(terms.postscale);
}

void get_terms(ByteReader& reader, Terms& terms) {
  terms.what = get_enum<Collective>(reader, kCollectiveCount);
  terms.dtype = get_enum<DType>(reader, kDTypeCount);
  terms.op = get_enum<ReduceOp>(reader, kReduceOpCount);
  terms.memory = get_enum<MemoryKind>(reader, kMemoryKindCount);
  terms.device = reader.get<int32_t>();
  terms.prescale = reader.get<double>();
  terms.postscale = reader.get<double>();
}

void put_request(ByteWriter& writer, const Request& request) {
  put_enum(writer, request.kind);
  put_terms(writer, request);
  writer.put(request.process_set);
  writer.put_string(request.name);
  writer.put_vector(request.shape);
  writer.put(request.root);
  writer.put_vector(request.splits);
  writer.put(request.group_index);
  writer.put(request.group_size);
  writer.put_string(request.group_name);
  writer.put(request.tag);
  writer.put(request.priority);
  writer.put_vector(request.set_ranks);
  writer.put(request.set_id);
}

void put_requests(ByteWriter& writer, std::span<const Request> requests) {
  writer.put(static_cast<uint32_t>(requests.size()));
  for (const Request& request : requests) put_request(writer, request);
}

Request get_request(ByteReader& reader) {
  Request request;
  request.kind = get_enum<Request::Kind>(reader, kRequestKindCount);
  get_terms(reader, request);
  request.process_set = reader.get<int32_t>();
  request.name = reader.get_string(kMaxNameBytes);
  request.shape = get_shape(reader);
  request.root = reader.get<Rank>();
  request.splits = reader.get_vector<int32_t>(kMaxRanks);
  request.group_index = reader.get<int32_t>();
  request.group_size = reader.get<int32_t>();
  request.group_name = reader.get_string(kMaxNameBytes);
  request.tag = reader.get<int64_t>();
  request.priority = reader.get<int32_t>();
  request.set_ranks = reader.get_vector<Rank>(kMaxRanks);
  request.set_id = reader.get<int32_t>();
  if (request.group_size < 1 || request.group_index < 0 || request.group_index >= request.group_size)
    reader.fail();
  return request;
}

void put_response(ByteWriter& writer, const Response& response) {
  put_enum(writer, response.kind);
  put_terms(writer, response);
  put_enum(writer, response.code);
  writer.put(response.process_set);
  writer.put(response.root);
  writer.put(static_cast<uint32_t>(response.entries.size()));
  for (const Entry& entry : response.entries) {
    writer.put_string(entry.name);
    writer.put_vector(entry.shape);
    writer.put_vector(entry.rows);
    writer.put_vector(entry.failed_ranks);
  }
  writer.put_vector(response.joined);
  writer.put_string(response.error);
  writer.put(response.last_joined);
  writer.put(response.tag);
  writer.put_vector(response.set_ranks);
  writer.put(response.set_id);
  writer.put(static_cast<uint32_t>(response.flows.size()));
  for (const Flow& flow : response.flows) {
    writer.put(flow.from);
    writer.put(flow.to);
    writer.put(flow.messages);
  }
}

Response get_response(ByteReader& reader, size_t payload_bytes) {
  Response response;
  response.kind = get_enum<Response::Kind>(reader, kResponseKindCount);
  get_terms(reader, response);
  response.code = get_enum<Code>(reader, kCodeCount);
  response.process_set = reader.get<int32_t>();
  response.root = reader.get<Rank>();
  const size_t entries = get_count(reader, payload_bytes, kMinEntryBytes);
  for (size_t i = 0; i < entries && reader.is_ok(); ++i) {
    Entry& entry = response.entries.emplace_back();
    entry.name = reader.get_string(kMaxNameBytes);
    entry.shape = get_shape(reader);
    entry.rows = reader.get_vector<int64_t>(kMaxRows);
    entry.failed_ranks = reader.get_vector<Rank>(kMaxRanks);
  }
  response.joined = reader.get_vector<Rank>(kMaxRanks);
  response.error = reader.get_string(kMaxTextBytes);
  response.last_joined = reader.get<Rank>();
  response.tag = reader.get<int64_t>();
  response.set_ranks = reader.get_vector<Rank>(kMaxRanks);
  response.set_id = reader.get<int32_t>();
  const size_t flows = get_count(reader, payload_bytes, kFlowBytes);
  for (size_t i = 0; i < flows && reader.is_ok(); ++i) {
    Flow& flow = response.flows.emplace_back();
    flow.from = reader.get<Rank>();
    flow.to = reader.get<Rank>();
    flow.messages = reader.get<int32_t>();
    if (flow.from < 0 || flow.to < 0 || flow.messages < 1) reader.fail();
  }
  return response;
}

Status malformed(std::string_view what) {
  return {Code::kInternal, "A control message (" + std::string(what) +
                               ") is malformed; the sender is damaged or of another version."};
}

bool is_whole(const ByteReader& reader) { return reader.is_ok() && reader.is_at_end(); }

}  // namespace

Bytes encode(std::span<const Request> requests) {
  ByteWriter writer;
  put_requests(writer, requests);
  return std::move(writer).take();
}

Bytes encode(std::span<const Response> responses) {
  ByteWriter writer;
  writer.put(static_cast<uint32_t>(responses.size()));
  for (const Response& response : responses) put_response(writer, response);
  return std::move(writer).take();
}

Result<std::vector<Request>> decode_requests(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const size_t count = get_count(reader, payload.size(), kMinRequestBytes);
  std::vector<Request> requests;
  for (size_t i = 0; i < count && reader.is_ok(); ++i) requests.push_back(get_request(reader));
  if (!is_whole(reader)) return malformed("requests");
  return requests;
}

Result<std::vector<Response>> decode_responses(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const size_t count = get_count(reader, payload.size(), kMinResponseBytes);
  std::vector<Response> responses;
  for (size_t i = 0; i < count && reader.is_ok(); ++i)
    responses.push_back(get_response(reader, payload.size()));
  if (!is_whole(reader)) return malformed("responses");
  return responses;
}

Bytes encode(int64_t plans_begun, std::span<const Request> requests) {
  ByteWriter writer;
  writer.put(plans_begun);
  put_requests(writer, requests);
  return std::move(writer).take();
}

Result<Submitted> decode_submitted(std::span<const std::byte> payload) {
  if (payload.size() < sizeof(int64_t)) return malformed("requests");
  ByteReader reader(payload.first(sizeof(int64_t)));
  Submitted submitted;
  submitted.plans_begun = reader.get<int64_t>();
  Result<std::vector<Request>> requests = decode_requests(payload.subspan(sizeof(int64_t)));
  if (!requests.is_ok()) return requests.status();
  submitted.requests = std::move(requests).value();
  return submitted;
}

Bytes encode(const PlanNews& news) {
  ByteWriter writer;
  writer.put(news.generation);
  writer.put(news.started);
  writer.put_vector(news.sent);
  return std::move(writer).take();
}

Result<PlanNews> decode_plan_news(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  PlanNews news;
  news.generation = reader.get<int64_t>();
  news.started = reader.get<int64_t>();
  news.sent = reader.get_vector<int32_t>(kMaxRanks);
  if (!is_whole(reader)) return malformed("plan news");
  return news;
}

std::array<std::byte, kFrameHeaderBytes> encode_header(const FrameHeader& header) {
  std::array<std::byte, kFrameHeaderBytes> raw{};
  std::memcpy(raw.data(), &header.bytes, sizeof(header.bytes));
  raw[4] = static_cast<std::byte>(header.type);
  return raw;
}

Result<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderBytes> raw) {
  ByteReader reader(raw);
  FrameHeader header;
  header.bytes = reader.get<uint32_t>();
  const auto type = reader.get<uint8_t>();
  for (int i = 0; i < 3; ++i)
    if (reader.get<uint8_t>() != 0) return malformed("frame header");
  if (header.bytes > kMaxFrameBytes) return malformed("frame length");
  if (type < kFirstFrameType || type > kLastFrameType) return malformed("frame type");
  header.type = static_cast<FrameType>(type);
  return header;
}

Bytes encode(const Heartbeat& heartbeat) {
  ByteWriter writer;
  writer.put(heartbeat.sent);
  writer.put(heartbeat.echo_sent);
  writer.put(heartbeat.echo_received);
  return std::move(writer).take();
}

Result<Heartbeat> decode_heartbeat(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Heartbeat heartbeat;
  heartbeat.sent = reader.get<Nanos>();
  heartbeat.echo_sent = reader.get<Nanos>();
  heartbeat.echo_received = reader.get<Nanos>();
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

Bytes encode(const Abort& abort) {
  ByteWriter writer;
  writer.put(abort.lost);
  writer.put(static_cast<int32_t>(abort.code));
  writer.put_string(std::string_view(abort.why).substr(0, kMaxTextBytes));
  return std::move(writer).take();
}

Result<Abort> decode_abort(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Abort abort;
  abort.lost = reader.get<Rank>();
  const auto code = reader.get<int32_t>();
  if (code < 0 || code >= kCodeCount) reader.fail();
  abort.code = static_cast<Code>(code);
  abort.why = reader.get_string(kMaxTextBytes);
  if (!is_whole(reader)) return malformed("abort");
  return abort;
}

}  // namespace rueda::control
