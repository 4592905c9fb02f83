#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "control_fixture.h"
#include "rueda/base/limits.h"
#include "rueda/control/message_types.h"

namespace rueda::control::messages_test {
namespace {

using Random = std::mt19937_64;

// Requests as ranks send them: behind how many plans their sender has seen begin.
constexpr size_t kBeforeRequests = sizeof(int64_t);
Bytes encode(const std::vector<Request>& requests) { return control::encode(7, requests); }
Result<std::vector<Request>> decode_requests(std::span<const std::byte> payload) {
  const Result<Submitted> decoded = decode_submitted(payload);
  if (!decoded.is_ok()) return decoded.status();
  return decoded.value().requests;
}

uint64_t fresh_seed() {
  const uint64_t seed = std::random_device{}();
  testing::Test::RecordProperty("seed", std::to_string(seed));
  std::printf("seed %lu\n", seed);
  return seed;
}

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

std::string random_text(Random& random) {
  std::string text(static_cast<size_t>(pick(random, 0, 20)), ' ');
  for (char& c : text) c = static_cast<char>(pick(random, 0, 255));
  return text;
}

template <class T>
std::vector<T> random_numbers(Random& random, int64_t low) {
  std::vector<T> numbers(static_cast<size_t>(pick(random, 0, 5)));
  for (T& n : numbers) n = static_cast<T>(pick(random, low, 1000));
  return numbers;
}

void fill_terms(Random& random, Terms& terms) {
  terms.what = static_cast<Collective>(pick(random, 0, 6));
  terms.dtype = static_cast<DType>(pick(random, 0, kDTypeCount - 1));
  terms.op = static_cast<ReduceOp>(pick(random, 0, 5));
  terms.prescale = static_cast<double>(pick(random, -9, 9)) / 7;
  terms.postscale = static_cast<double>(pick(random, -9, 9)) / 7;
  terms.device = static_cast<int32_t>(pick(random, -1, 3));
  terms.memory = static_cast<MemoryKind>(pick(random, 0, 2));
  terms.wire = static_cast<Wire>(pick(random, 0, 3));
}

// And where its number begins.
std::pair<std::string, uint16_t> random_name(Random& random) {
  std::string name = random_text(random);
  if (pick(random, 0, 1) == 0) return {std::move(name), uint16_t{0}};
  name += '.';
  const auto at = static_cast<uint16_t>(name.size());
  name += std::to_string(pick(random, 0, 999'999'999'999'999'999)) + "_1of3";
  return {std::move(name), at};
}

TensorRequest random_tensor(Random& random) {
  TensorRequest r;
  fill_terms(random, r);
  r.process_set = static_cast<int32_t>(pick(random, -1, 5));
  std::tie(r.name, r.numbered_at) = random_name(random);
  r.shape = random_numbers<int64_t>(random, 0);
  r.root = static_cast<Rank>(pick(random, -1, 5));
  r.splits = random_numbers<int32_t>(random, -3);
  r.group_size = static_cast<int32_t>(pick(random, 1, 4));
  r.group_index = static_cast<int32_t>(pick(random, 0, r.group_size - 1));
  r.group_name = random_text(random);
  r.tag = pick(random, INT64_MIN, INT64_MAX);
  r.priority = static_cast<int32_t>(pick(random, INT32_MIN, INT32_MAX));
  r.shares_memory = pick(random, 0, 1) == 1;
  for (int64_t i = r.shares_memory ? pick(random, 0, 3) : 0; i > 0; --i)
    r.after.push_back({.process_set = static_cast<int32_t>(pick(random, 0, 5)), .name = random_text(random)});
  return r;
}

Request random_request(Random& random) {
  const int64_t kind = pick(random, 0, 2);
  if (kind == 0) return random_tensor(random);
  SetChange change{.name = random_text(random), .what = {}};
  if (kind == 1)
    change.what = AddSet{.ranks = random_numbers<Rank>(random, -3)};
  else
    change.what = RemoveSet{.id = static_cast<int32_t>(pick(random, -1, 9))};
  return change;
}

Bucket random_bucket(Random& random) {
  Bucket r;
  fill_terms(random, r);
  r.process_set = static_cast<int32_t>(pick(random, 0, 5));
  r.root = static_cast<Rank>(pick(random, -1, 5));
  for (int64_t i = pick(random, 0, 4); i > 0; --i) {
    auto [name, numbered_at] = random_name(random);
    r.entries.push_back({.name = std::move(name),
                         .shape = random_numbers<int64_t>(random, 0),
                         .rows = random_numbers<int64_t>(random, 0),
                         .numbered_at = numbered_at,
                         .stride = pick(random, 0, 999)});
  }
  r.joined = random_numbers<Rank>(random, 0);
  return r;
}

Failure random_failure(Random& random) {
  Failure r;
  r.process_set = static_cast<int32_t>(pick(random, 0, 5));
  r.error = random_text(random);
  for (int64_t i = pick(random, 0, 4); i > 0; --i)
    r.failed.push_back({random_text(random), random_numbers<Rank>(random, 0)});
  r.code = static_cast<Code>(pick(random, 0, 12));
  return r;
}

std::vector<std::string> random_names(Random& random) {
  std::vector<std::string> names;
  for (int64_t i = pick(random, 0, 3); i > 0; --i) names.push_back(random_text(random));
  return names;
}

PlanEnd random_end(Random& random) {
  PlanEnd end;
  for (int64_t i = pick(random, 0, 3); i > 0; --i) end.runs.push_back(pick(random, 0, INT64_MAX));
  for (int64_t i = pick(random, 0, 3); i > 0; --i)
    end.flows.push_back({.bucket = pick(random, 0, 99),
                         .from = static_cast<Rank>(pick(random, 0, 9)),
                         .to = static_cast<Rank>(pick(random, 0, 9)),
                         .messages = static_cast<int32_t>(pick(random, 1, 9))});
  end.is_change = pick(random, 0, 1) == 1;
  return end;
}

PlanBegin random_begin(Random& random) {
  PlanBegin begin{.plan_number = pick(random, 0, INT64_MAX), .sets = {}};
  for (int64_t i = pick(random, 0, 3); i > 0; --i) {
    PlanSet& set =
        begin.sets.emplace_back(PlanSet{.id = static_cast<int32_t>(pick(random, 1, 9)), .ranks = {}});
    const auto first = static_cast<Rank>(pick(random, 0, 5));
    for (Rank rank = first; rank <= first + 2; ++rank) set.ranks.push_back(rank);
  }
  return begin;
}

PlanBucket random_planned(Random& random) {
  PlanBucket planned{.bucket = random_bucket(random)};
  planned.bucket.tuning.algorithm = static_cast<uint8_t>(pick(random, 0, 255));
  if (pick(random, 0, 1) == 1)
    planned.bucket.tuning.chunk_bytes = pick(random, kLeastChunkBytes, kMostChunkBytes);
  return planned;
}

Response random_response(Random& random) {
  switch (pick(random, 0, std::variant_size_v<Response> - 1)) {
    case 0:
      return random_bucket(random);
    case 1:
      return random_failure(random);
    case 2:
      return Joined{.names = random_names(random),
                    .last = static_cast<Rank>(pick(random, -1, 5)),
                    .tag = pick(random, INT64_MIN, INT64_MAX)};
    case 3:
      return SetAdded{.names = random_names(random),
                      .id = static_cast<int32_t>(pick(random, 0, 9)),
                      .ranks = random_numbers<Rank>(random, 0)};
    case 4:
      return SetRemoved{.names = random_names(random), .id = static_cast<int32_t>(pick(random, 0, 9))};
    case 5:
      return random_planned(random);
    case 6:
      return random_begin(random);
    default:
      return random_end(random);
  }
}

std::vector<Request> random_requests(Random& random) {
  std::vector<Request> out;
  for (int64_t i = pick(random, 0, 4); i > 0; --i) out.push_back(random_request(random));
  return out;
}

std::vector<Response> random_responses(Random& random) {
  std::vector<Response> out;
  for (int64_t i = pick(random, 0, 4); i > 0; --i) out.push_back(random_response(random));
  return out;
}

TEST(Messages, survive_a_round_trip) {
  Random random(fresh_seed());
  for (int i = 0; i < 2000; ++i) {
    const auto requests = random_requests(random);
    const auto decoded_requests = decode_requests(encode(requests));
    ASSERT_TRUE(decoded_requests.is_ok());
    EXPECT_EQ(decoded_requests.value(), requests);
    const auto responses = random_responses(random);
    const auto decoded_responses = decode_responses(encode(responses));
    ASSERT_TRUE(decoded_responses.is_ok());
    EXPECT_EQ(decoded_responses.value(), responses);
  }
}

TEST(Messages, cut_short_or_with_trailing_bytes_are_refused) {
  Random random(fresh_seed());
  const Bytes requests = encode(std::vector<Request>{random_request(random), random_request(random)});
  const Bytes responses = encode(std::vector<Response>{random_response(random), random_response(random)});
  for (size_t size = 0; size < requests.size(); ++size)
    EXPECT_FALSE(decode_requests(std::span(requests).first(size)).is_ok());
  for (size_t size = 0; size < responses.size(); ++size)
    EXPECT_FALSE(decode_responses(std::span(responses).first(size)).is_ok());
  Bytes longer = requests;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_requests(longer).is_ok());
}

// Whatever decodes must be well-formed: encoding it again gives the same bytes.
TEST(Messages, random_mutations_are_refused_or_well_formed) {
  Random random(fresh_seed());
  for (int i = 0; i < 20'000; ++i) {
    const bool is_request = pick(random, 0, 1) == 0;
    Bytes bytes = is_request ? encode(random_requests(random)) : encode(random_responses(random));
    for (int64_t n = pick(random, 1, 3); n > 0; --n)
      bytes[static_cast<size_t>(pick(random, 0, static_cast<int64_t>(bytes.size()) - 1))] =
          static_cast<std::byte>(pick(random, 0, 255));
    if (is_request) {
      const auto decoded = decode_submitted(bytes);
      EXPECT_TRUE(!decoded.is_ok() ||
                  control::encode(decoded.value().plans_begun, decoded.value().requests) == bytes);
    } else {
      const auto decoded = decode_responses(bytes);
      EXPECT_TRUE(!decoded.is_ok() || encode(decoded.value()) == bytes);
    }
  }
}

TEST(Messages, a_hostile_count_allocates_nothing) {
  for (const bool is_request : {false, true}) {
    ByteWriter writer;
    if (is_request) writer.put(int64_t{7});
    writer.put(uint32_t{0xffffffff});
    EXPECT_FALSE(is_request ? decode_requests(writer.bytes()).is_ok()
                            : decode_responses(writer.bytes()).is_ok());
  }
}

TEST(Messages, enum_values_out_of_range_and_negative_dimensions_are_refused) {
  for (const size_t field : {0u, 1u, 2u, 3u}) {  // kind, what, dtype, op come first
    Bytes bytes = encode(std::vector<Request>{allreduce("a")});
    bytes[kBeforeRequests + 4 + field] = std::byte{200};
    EXPECT_FALSE(decode_requests(bytes).is_ok()) << field;
    bytes = encode(std::vector<Response>{Response()});
    bytes[4 + field] = std::byte{200};
    EXPECT_FALSE(decode_responses(bytes).is_ok()) << field;
  }
  EXPECT_FALSE(decode_requests(encode(std::vector<Request>{allreduce("a", {-1})})).is_ok());
  EXPECT_FALSE(decode_requests(encode(std::vector<Request>{allreduce(std::string(5000, 'x'))})).is_ok());
  TensorRequest outside = allreduce("a");
  outside.group_index = 1;
  EXPECT_FALSE(decode_requests(encode(std::vector<Request>{outside})).is_ok());
}

TEST(Messages, chunks_of_a_plan_are_as_large_as_they_may_be_set) {
  const auto is_taken = [](int64_t chunk_bytes) {
    PlanBucket planned;
    planned.bucket.tuning.chunk_bytes = chunk_bytes;
    const std::vector<Response> responses = {planned};
    return decode_responses(encode(responses)).is_ok();
  };
  for (const int64_t bytes : {int64_t{0}, kLeastChunkBytes, kMostChunkBytes}) EXPECT_TRUE(is_taken(bytes));
  for (const int64_t bytes : {int64_t{-1}, kLeastChunkBytes - 1, kMostChunkBytes + 1})
    EXPECT_FALSE(is_taken(bytes));
}

TEST(Messages, what_shares_no_memory_spends_no_byte_on_an_order) {
  TensorRequest shares = allreduce("a");
  const size_t alone = encode(std::vector<Request>{shares}).size();
  shares.shares_memory = true;
  EXPECT_EQ(encode(std::vector<Request>{shares}).size(), alone);
  shares.after = {{.process_set = 1, .name = "b"}};
  Bytes bytes = encode(std::vector<Request>{shares});
  ASSERT_GT(bytes.size(), alone);
  bytes[alone - 1] = std::byte{3};  // the last byte of the request, but for the list
  EXPECT_FALSE(decode_requests(bytes).is_ok());
  bytes.resize(alone);
  bytes[alone - 1] = std::byte{2};
  for (int zero = 0; zero < 4; ++zero) bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_requests(bytes).is_ok()) << "a list that is empty has another form";
}

TEST(Messages, headers_are_checked) {
  const auto raw = encode_header({.bytes = 77, .type = MessageType::kStallReport});
  const auto header = decode_header(raw);
  ASSERT_TRUE(header.is_ok());
  EXPECT_EQ(header.value().bytes, 77u);
  EXPECT_EQ(header.value().type, MessageType::kStallReport);
  for (const auto& [at, value] : {std::pair(4, 0), {4, 99}, {5, 1}, {7, 1}, {3, 0x7f}}) {
    auto bad = raw;
    bad[static_cast<size_t>(at)] = static_cast<std::byte>(value);
    EXPECT_FALSE(decode_header(bad).is_ok()) << at << "=" << value;
  }
}

TEST(Messages, heartbeats_and_aborts_survive_and_are_bounded) {
  const auto heartbeat = decode_heartbeat(encode(Heartbeat{1, -2, 3}));
  ASSERT_TRUE(heartbeat.is_ok());
  EXPECT_EQ(heartbeat.value().echo_sent, -2);
  const auto abort = decode_abort(encode(Abort{3, Code::kStalled, "why"}));
  ASSERT_TRUE(abort.is_ok());
  EXPECT_EQ(abort.value().lost, 3);
  EXPECT_EQ(abort.value().code, Code::kStalled);
  EXPECT_EQ(abort.value().why, "why");
  EXPECT_FALSE(decode_heartbeat({}).is_ok());
  EXPECT_FALSE(decode_abort(encode(Abort{3, static_cast<Code>(99), "why"})).is_ok());
}

}  // namespace
}  // namespace rueda::control::messages_test
