// The pure parts of the UCX transport: pieces, greetings, versions, and the shared bounce buffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "rueda/transport/ucx/api.h"
#include "rueda/transport/ucx/bounce_buffers.h"
#include "rueda/transport/ucx/greeting.h"
#include "rueda/transport/ucx/piece.h"

namespace rueda::transport::over_ucx_test {
namespace {

using ::testing::HasSubstr;

TEST(UcxPiece, the_pieces_of_a_message_cover_it_exactly) {
  for (const size_t bytes : {size_t{0}, size_t{1}, kUcxEagerBytes, kUcxEagerBytes + 1, kUcxPieceBytes,
                             kUcxPieceBytes + 1, 5 * kUcxPieceBytes - 7}) {
    size_t offset = 0, pieces = 0;
    do {
      offset += piece_bytes(bytes, offset);
      ++pieces;
    } while (offset < bytes);
    EXPECT_EQ(offset, bytes);
    EXPECT_EQ(pieces, bytes == 0 ? 1 : (bytes + kUcxPieceBytes - 1) / kUcxPieceBytes);
  }
}

TEST(UcxPiece, a_header_of_another_size_or_kind_is_none) {
  PieceHeader header{.from = 3, .kind = PieceKind::kSync, .channel = 2, .piece = 7, .bytes = 11};
  Bytes bytes(sizeof(header));
  std::memcpy(bytes.data(), &header, sizeof(header));
  const std::optional<PieceHeader> parsed = parse_piece_header(bytes);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->from, 3u);
  EXPECT_EQ(parsed->bytes, 11u);
  EXPECT_FALSE(parse_piece_header(std::span(bytes).first(47)).has_value());
  EXPECT_FALSE(parse_piece_header({}).has_value());
  for (const int kind : {0, 5, 65535}) {
    header.kind = static_cast<PieceKind>(kind);
    std::memcpy(bytes.data(), &header, sizeof(header));
    EXPECT_FALSE(parse_piece_header(bytes).has_value()) << kind;
  }
}

UcxToken token_of(const std::array<uint8_t, 16>& bytes) {
  UcxToken token;
  std::memcpy(token.data(), bytes.data(), token.size());
  return token;
}

RC_GTEST_PROP(UcxPiece, tokens_are_equal_only_if_all_their_bytes_are, (std::array<uint8_t, 16> bytes)) {
  const UcxToken token = token_of(bytes);
  RC_ASSERT(is_equal(token, token_of(bytes)));
  bytes[*rc::gen::inRange<size_t>(0, bytes.size())] ^= *rc::gen::inRange<uint8_t>(1, 255);
  RC_ASSERT(!is_equal(token, token_of(bytes)));
}

// Feeds a greeting in parts; returns whether it was accepted to the end.
bool read(GreetingReader& reader, std::span<const std::byte> bytes, size_t part) {
  while (reader.missing() > 0) {
    const size_t size = std::min({part, reader.missing(), bytes.size()});
    if (size == 0) return false;
    if (!reader.feed(bytes.first(size)).is_ok()) return false;
    bytes = bytes.subspan(size);
  }
  return true;
}

TEST(UcxGreeting, it_arrives_whole_however_it_is_cut) {
  UcxToken token;
  token.fill(std::byte{9});
  Bytes address(500);
  for (size_t i = 0; i < address.size(); ++i) address[i] = static_cast<std::byte>(i);
  for (const size_t part : {1, 3, 24, 25, 4096}) {
    GreetingReader reader;
    ASSERT_TRUE(read(reader, encode_greeting(token, address), part));
    EXPECT_EQ(reader.token(), token);
    EXPECT_TRUE(std::ranges::equal(reader.address(), address));
  }
}

TEST(UcxGreeting, one_that_is_no_greeting_fails_before_anything_is_allocated_for_it) {
  const Bytes good = encode_greeting({}, Bytes(10));
  for (const auto& [at, value] : {std::pair{0, 1}, {4, 0}, {7, 1}}) {  // magic; no address; 16 MiB of address
    Bytes bad = good;
    bad[static_cast<size_t>(at)] = static_cast<std::byte>(value);
    GreetingReader reader;
    EXPECT_FALSE(read(reader, bad, 4096)) << at;
  }
}

RC_GTEST_PROP(UcxGreeting, no_bytes_make_the_reader_want_more_than_its_limit,
              (const std::vector<uint8_t>& noise, bool has_magic)) {
  Bytes bytes = has_magic ? encode_greeting({}, Bytes(1)) : Bytes();
  if (has_magic) bytes.resize(4);
  bytes.insert(bytes.end(), std::as_bytes(std::span(noise)).begin(), std::as_bytes(std::span(noise)).end());
  GreetingReader reader;
  std::span<const std::byte> rest = bytes;
  while (reader.missing() > 0 && !rest.empty()) {
    const size_t size = std::min({size_t{7}, reader.missing(), rest.size()});
    if (!reader.feed(rest.first(size)).is_ok()) return;
    rest = rest.subspan(size);
  }
  RC_ASSERT(reader.missing() <= GreetingReader::kHeaderBytes + kMaxWorkerAddress);
}

TEST(UcxVersion, an_old_library_is_refused_with_what_to_do) {
  EXPECT_TRUE(ucx::check_version(1, 13, 1).is_ok());
  EXPECT_TRUE(ucx::check_version(1, 20, 0).is_ok());
  for (const auto& [major, minor] : {std::pair{1U, 12U}, {0U, 0U}, {2U, 0U}}) {
    const Status status = ucx::check_version(major, minor, 3);
    EXPECT_EQ(status.code, Code::kUnavailable);
    EXPECT_THAT(status.why, HasSubstr(std::to_string(major) + "." + std::to_string(minor) + ".3"));
    EXPECT_THAT(status.why, HasSubstr("remove ucx from RUEDA_TRANSPORTS"));
  }
}

TEST(UcxSettings, shared_memory_is_found_in_lists_and_in_negated_lists) {
  for (const char* yes : {"all", "sm,self", "rc,sm", "posix", "^tcp", "^ud,tcp"})
    EXPECT_TRUE(ucx::may_share_memory(yes)) << yes;
  for (const char* no : {"tcp", "tcp,self", "rc,ud", "^sm", "^tcp,sm", ""})
    EXPECT_FALSE(ucx::may_share_memory(no)) << no;
}

TEST(UcxSettings, tcp_is_found_in_lists_and_in_negated_lists) {
  for (const char* yes : {"all", "tcp", "tcp,self", "rc,tcp", "^sm", "^rc,ud", "*", "t?p"})
    EXPECT_TRUE(ucx::may_use_tcp(yes)) << yes;
  for (const char* no : {"^tcp", "^sm,tcp", "rc,sm", "self", "", "^all", "^*"})
    EXPECT_FALSE(ucx::may_use_tcp(no)) << no;
}

TEST(UcxRequests, results_are_told_apart) {
  int object = 0;
  EXPECT_TRUE(ucx::is_request(&object));
  EXPECT_FALSE(ucx::is_request(nullptr));
  EXPECT_EQ(ucx::code_of(nullptr), ucx::kOk);
  for (const int code : {-1, -25, -80, -100}) {
    void* result = reinterpret_cast<void*>(static_cast<intptr_t>(code));
    EXPECT_FALSE(ucx::is_request(result)) << code;
    EXPECT_EQ(ucx::code_of(result), code);
  }
}

TEST(UcxLanding, places_are_lent_once_and_come_back) {
  BounceBuffers bounce_buffers;
  std::set<std::byte*> lent;
  while (std::byte* place = bounce_buffers.take()) EXPECT_TRUE(lent.insert(place).second);
  EXPECT_EQ(lent.size(), BounceBuffers::kBuffers);
  EXPECT_FALSE(bounce_buffers.has_room());
  EXPECT_FALSE(lent.contains(bounce_buffers.scratch()));
  bounce_buffers.give_back(*lent.begin());
  EXPECT_EQ(bounce_buffers.take(), *lent.begin());
}

}  // namespace
}  // namespace rueda::transport::over_ucx_test
