// Lists on the wire: the same bytes as a count and the items one by one, and no count that
// makes a reader allocate.
#include "rueda/base/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace rueda::base_bytes_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string get_text(ByteReader& reader) { return reader.get_string(100); }

Bytes of_texts(const std::vector<std::string>& texts) {
  ByteWriter writer;
  writer.put_list(texts, [](ByteWriter& to, const std::string& text) { to.put_string(text); });
  return std::move(writer).take();
}

TEST(Lists, are_a_count_and_their_items) {
  ByteWriter expected;
  expected.put(uint32_t{2});
  expected.put_string("one");
  expected.put_string("");
  EXPECT_EQ(of_texts({"one", ""}), expected.bytes());
  ByteReader reader(expected.bytes());
  EXPECT_THAT(reader.get_list(get_text), ElementsAre("one", ""));
  EXPECT_TRUE(reader.is_ok() && reader.is_at_end());
}

TEST(Lists, have_at_most_as_many_items_as_their_reader_allows) {
  const Bytes two = of_texts({"one", "two"});
  ByteReader allows_two(two), allows_one(two);
  EXPECT_THAT(allows_two.get_list(2, get_text), ElementsAre("one", "two"));
  EXPECT_TRUE(allows_two.is_ok());
  EXPECT_THAT(allows_one.get_list(1, get_text), IsEmpty());
  EXPECT_FALSE(allows_one.is_ok());
}

TEST(Lists, announcing_more_items_than_bytes_follow_are_refused_before_anything_is_read) {
  ByteWriter writer;
  writer.put(UINT32_MAX);
  for (int byte = 0; byte < 8; ++byte) writer.put(uint8_t{0});
  ByteReader reader(writer.bytes());
  int reads = 0;
  const auto items = reader.get_list(UINT32_MAX, [&](ByteReader& from) {
    ++reads;
    return std::pair(from.get<uint8_t>(), std::array<int64_t, 1000>());
  });
  EXPECT_FALSE(reader.is_ok());
  EXPECT_EQ(reads, 0);
  EXPECT_EQ(items.capacity(), 0u);
}

TEST(Lists, end_at_the_first_item_that_cannot_be_read) {
  ByteWriter writer;
  writer.put(uint32_t{6});
  writer.put_string("whole");
  writer.put(uint32_t{50});  // of a text that is missing
  ByteReader reader(writer.bytes());
  int reads = 0;
  EXPECT_LE(reader.get_list([&](ByteReader& from) { return ++reads, get_text(from); }).size(), 2u);
  EXPECT_EQ(reads, 2);
  EXPECT_FALSE(reader.is_ok());
}

}  // namespace
}  // namespace rueda::base_bytes_test
