#include "rueda/control/messages.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <type_traits>

#include "rueda/base/limits.h"
#include "rueda/control/message_types.h"
#include "rueda/control/numbered_name.h"

namespace rueda::control {
namespace {

constexpr size_t kMaxRows = kMaxMessageBytes / sizeof(int64_t);  // an alltoall has n * n rows
constexpr size_t kMaxPlanBuckets = 1 << 16;
// How many values there are. The enums of the terms have a count_of beside them.
constexpr int count_of(Code /*code*/) { return kCodeCount; }
constexpr int count_of(bool /*flag*/) { return 2; }

// Most tensors share no memory, so that is all they say about it.
enum class MemoryUse : uint8_t { kAlone = 0, kShared = 1, kSharedInOrder = 2 };

constexpr int count_of(MemoryUse /*use*/) { return 3; }

enum class RequestKind : uint8_t { kTensor = 0, kAddSet = 1, kRemoveSet = 2 };

// Numbers as they are; enums and flags as one byte.
template <class T>
void put_value(ByteWriter& writer, T value) {
  if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>)
    writer.put(static_cast<uint8_t>(value));
  else
    writer.put(value);
}

// An enum is cast only after its number is known to have a name.
template <class T>
void get_value(ByteReader& reader, T& value) {
  if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
    const auto raw = reader.get<uint8_t>();
    if (raw >= count_of(T())) return reader.fail();
    value = static_cast<T>(raw);
  } else {
    value = reader.get<T>();
  }
}

std::vector<int64_t> get_shape(ByteReader& reader) {
  std::vector<int64_t> shape = reader.get_vector<int64_t>(kMaxDims);
  for (const int64_t dim : shape)
    if (dim < 0) return reader.fail(), std::vector<int64_t>();
  return shape;
}

void put_terms(ByteWriter& writer, const Terms& terms) {
  for_each_term(terms, [&](const auto& term) { put_value(writer, term); });
}

void get_terms(ByteReader& reader, Terms& terms) {
  for_each_term(terms, [&](auto& term) { get_value(reader, term); });
}

void put_name(ByteWriter& writer, const std::string& name) { writer.put_string(name); }

std::string get_name(ByteReader& reader) { return reader.get_string(kMaxNameBytes); }

// Where a running number begins in the name that was read before.
uint16_t get_numbered_at(ByteReader& reader, const std::string& name) {
  const auto at = reader.get<uint16_t>();
  if (at != 0 && !split_name(name, at)) reader.fail();
  return at;
}

// ---- requests ----

void put_memory_use(ByteWriter& writer, const TensorRequest& request) {
  if (request.after.empty())
    return put_value(writer, request.shares_memory ? MemoryUse::kShared : MemoryUse::kAlone);
  put_value(writer, MemoryUse::kSharedInOrder);
  writer.put_list(request.after, [](ByteWriter& to, const NameInSet& one) {
    to.put(one.process_set);
    put_name(to, one.name);
  });
}

void get_memory_use(ByteReader& reader, TensorRequest& request) {
  MemoryUse use = MemoryUse::kAlone;
  get_value(reader, use);
  request.shares_memory = use != MemoryUse::kAlone;
  if (use != MemoryUse::kSharedInOrder) return;
  request.after = reader.get_list([](ByteReader& from) {
    const auto process_set = from.get<int32_t>();
    return NameInSet{.process_set = process_set, .name = get_name(from)};
  });
  if (request.after.empty()) reader.fail();
}

void put_fields(ByteWriter& writer, const TensorRequest& request) {
  put_value(writer, RequestKind::kTensor);
  put_terms(writer, request);
  writer.put(request.process_set);
  put_name(writer, request.name);
  writer.put(request.numbered_at);
  writer.put_vector(request.shape);
  writer.put(request.root);
  writer.put_vector(request.splits);
  writer.put(request.group_index);
  writer.put(request.group_size);
  put_name(writer, request.group_name);
  writer.put(request.tag);
  writer.put(request.priority);
  put_memory_use(writer, request);
}

TensorRequest get_tensor_request(ByteReader& reader) {
  TensorRequest request;
  get_terms(reader, request);
  request.process_set = reader.get<int32_t>();
  request.name = get_name(reader);
  request.numbered_at = get_numbered_at(reader, request.name);
  request.shape = get_shape(reader);
  request.root = reader.get<Rank>();
  request.splits = reader.get_vector<int32_t>(kMaxRanks);
  request.group_index = reader.get<int32_t>();
  request.group_size = reader.get<int32_t>();
  request.group_name = get_name(reader);
  request.tag = reader.get<int64_t>();
  request.priority = reader.get<int32_t>();
  get_memory_use(reader, request);
  if (request.group_size < 1 || request.group_index < 0 || request.group_index >= request.group_size)
    reader.fail();
  return request;
}

void put_fields(ByteWriter& writer, const SetChange& change) {
  const auto* added = std::get_if<AddSet>(&change.what);
  put_value(writer, added != nullptr ? RequestKind::kAddSet : RequestKind::kRemoveSet);
  put_name(writer, change.name);
  if (added != nullptr)
    writer.put_vector(added->ranks);
  else
    writer.put(std::get<RemoveSet>(change.what).id);
}

void put_request(ByteWriter& writer, const Request& request) {
  std::visit([&](const auto& one) { put_fields(writer, one); }, request);
}

Request get_request(ByteReader& reader) {
  switch (reader.get<RequestKind>()) {
    case RequestKind::kTensor:
      return get_tensor_request(reader);
    case RequestKind::kAddSet:
      return SetChange{.name = get_name(reader), .what = AddSet{reader.get_vector<Rank>(kMaxRanks)}};
    case RequestKind::kRemoveSet:
      return SetChange{.name = get_name(reader), .what = RemoveSet{reader.get<int32_t>()}};
  }
  reader.fail();
  return {};
}

// ---- responses: how each alternative is written and read ----

void put_entry(ByteWriter& writer, const Entry& entry) {
  put_name(writer, entry.name);
  writer.put_vector(entry.shape);
  writer.put_vector(entry.rows.list());
  writer.put(entry.numbered_at);
  writer.put(entry.stride);
  put_value(writer, entry.rows_vary);
}

Entry get_entry(ByteReader& reader) {
  Entry entry{
      .name = get_name(reader), .shape = get_shape(reader), .rows = reader.get_vector<int64_t>(kMaxRows)};
  entry.numbered_at = get_numbered_at(reader, entry.name);
  entry.stride = reader.get<int64_t>();
  get_value(reader, entry.rows_vary);
  return entry;
}

void put_fields(ByteWriter& writer, const Bucket& bucket) {
  put_terms(writer, bucket);
  writer.put(bucket.process_set);
  writer.put(bucket.root);
  writer.put_list(bucket.entries, put_entry);
  writer.put_vector(bucket.joined);
}

void get_fields(ByteReader& reader, Bucket& bucket) {
  get_terms(reader, bucket);
  bucket.process_set = reader.get<int32_t>();
  bucket.root = reader.get<Rank>();
  bucket.entries = reader.get_list(get_entry);
  bucket.joined = reader.get_vector<Rank>(kMaxRanks);
}

void put_fields(ByteWriter& writer, const Failure& failure) {
  writer.put(failure.process_set);
  writer.put_list(failure.failed, [](ByteWriter& to, const FailedName& one) {
    put_name(to, one.name);
    to.put_vector(one.ranks);
  });
  put_value(writer, failure.code);
  writer.put_string(failure.error);
}

void get_fields(ByteReader& reader, Failure& failure) {
  failure.process_set = reader.get<int32_t>();
  failure.failed = reader.get_list([](ByteReader& from) {
    return FailedName{.name = get_name(from), .ranks = from.get_vector<Rank>(kMaxRanks)};
  });
  get_value(reader, failure.code);
  failure.error = reader.get_string(kMaxSentenceBytes);
}

void put_fields(ByteWriter& writer, const Joined& joined) {
  writer.put_list(joined.names, put_name);
  writer.put(joined.last);
  writer.put(joined.tag);
}

void get_fields(ByteReader& reader, Joined& joined) {
  joined.names = reader.get_list(get_name);
  joined.last = reader.get<Rank>();
  joined.tag = reader.get<int64_t>();
}

void put_fields(ByteWriter& writer, const SetAdded& added) {
  writer.put_list(added.names, put_name);
  writer.put(added.id);
  writer.put_vector(added.ranks);
}

void get_fields(ByteReader& reader, SetAdded& added) {
  added.names = reader.get_list(get_name);
  added.id = reader.get<int32_t>();
  added.ranks = reader.get_vector<Rank>(kMaxRanks);
}

void put_fields(ByteWriter& writer, const SetRemoved& removed) {
  writer.put_list(removed.names, put_name);
  writer.put(removed.id);
}

void get_fields(ByteReader& reader, SetRemoved& removed) {
  removed.names = reader.get_list(get_name);
  removed.id = reader.get<int32_t>();
}

void put_fields(ByteWriter& writer, const PlanBucket& planned) {
  put_fields(writer, planned.bucket);
  writer.put(planned.bucket.tuning.algorithm);
  writer.put(planned.bucket.tuning.chunk_bytes);
}

void get_fields(ByteReader& reader, PlanBucket& planned) {
  get_fields(reader, planned.bucket);
  CallTuning& tuning = planned.bucket.tuning;
  tuning.algorithm = reader.get<uint8_t>();
  tuning.chunk_bytes = reader.get<int64_t>();
  const bool is_usual = tuning.chunk_bytes == 0;
  if (!is_usual && (tuning.chunk_bytes < kLeastChunkBytes || tuning.chunk_bytes > kMostChunkBytes))
    reader.fail();
}

void put_fields(ByteWriter& writer, const PlanBegin& begin) {
  writer.put(begin.plan_number);
  writer.put_list(begin.sets, [](ByteWriter& to, const PlanSet& set) {
    to.put(set.id);
    to.put_vector(set.ranks);
  });
}

void get_fields(ByteReader& reader, PlanBegin& begin) {
  begin.plan_number = reader.get<int64_t>();
  begin.sets = reader.get_list([](ByteReader& from) {
    PlanSet set{.id = from.get<int32_t>(), .ranks = from.get_vector<Rank>(kMaxRanks)};
    const bool is_ascending =
        std::ranges::adjacent_find(set.ranks, std::ranges::greater_equal()) == set.ranks.end();
    if (set.id < 1 || set.ranks.empty() || set.ranks.front() < 0 || !is_ascending) from.fail();
    return set;
  });
}

void put_fields(ByteWriter& writer, const PlanEnd& end) {
  writer.put(static_cast<uint8_t>(end.is_change));
  writer.put_vector(end.runs);
  writer.put_list(end.flows, [](ByteWriter& to, const Flow& flow) {
    to.put(flow.bucket);
    to.put(flow.from);
    to.put(flow.to);
    to.put(flow.messages);
  });
}

void get_fields(ByteReader& reader, PlanEnd& end) {
  const auto is_change = reader.get<uint8_t>();
  if (is_change > 1) reader.fail();
  end.is_change = is_change == 1;
  end.runs = reader.get_vector<int64_t>(kMaxPlanBuckets);
  end.flows = reader.get_list([](ByteReader& from) {
    const Flow flow{.bucket = from.get<int64_t>(),
                    .from = from.get<Rank>(),
                    .to = from.get<Rank>(),
                    .messages = from.get<int32_t>()};
    if (flow.bucket < 0 || flow.from < 0 || flow.to < 0 || flow.messages < 1) from.fail();
    return flow;
  });
  if (std::ranges::any_of(end.runs, [](int64_t times) { return times < 0; })) reader.fail();
}

void put_response(ByteWriter& writer, const Response& response) {
  writer.put(static_cast<uint8_t>(response.index()));
  std::visit([&](const auto& one) { put_fields(writer, one); }, response);
}

// Makes the alternative with the number `kind`, in place.
template <size_t kFirst = 0>
void get_alternative(ByteReader& reader, size_t kind, Response& response) {
  if constexpr (kFirst == std::variant_size_v<Response>) {
    reader.fail();
  } else if (kind == kFirst) {
    get_fields(reader, response.emplace<kFirst>());
  } else {
    get_alternative<kFirst + 1>(reader, kind, response);
  }
}

Response get_response(ByteReader& reader) {
  Response response;
  get_alternative(reader, reader.get<uint8_t>(), response);
  return response;
}

}  // namespace

std::pair<int32_t, const std::string&> name_of(const Request& request) {
  if (const auto* tensor = std::get_if<TensorRequest>(&request)) return {tensor->process_set, tensor->name};
  return {0, std::get<SetChange>(request).name};
}

Bytes encode(std::span<const Response> responses) {
  ByteWriter writer;
  writer.put_list(responses, put_response);
  return std::move(writer).take();
}

Result<std::vector<Response>> decode_responses(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  std::vector<Response> responses = reader.get_list(get_response);
  if (!is_whole(reader)) return malformed("responses");
  return responses;
}

Bytes encode(int64_t plans_begun, std::span<const Request> requests) {
  ByteWriter writer;
  writer.put(plans_begun);
  writer.put_list(requests, put_request);
  return std::move(writer).take();
}

Result<Submitted> decode_submitted(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Submitted submitted;
  submitted.plans_begun = reader.get<int64_t>();
  submitted.requests = reader.get_list(get_request);
  if (!is_whole(reader)) return malformed("requests");
  return submitted;
}

}  // namespace rueda::control
