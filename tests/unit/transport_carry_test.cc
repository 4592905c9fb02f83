#include "rueda/transport/carry.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace rueda::transport::carry_test {
namespace {

// Checks that pieces come in order and in whole granules.
class Whole final : public Consumer {
 public:
  explicit Whole(size_t granule) : granule_(granule) {}
  void consume(size_t offset, std::span<const std::byte> piece) override {
    EXPECT_EQ(offset, seen.size());
    EXPECT_EQ(piece.size() % granule_, 0u);
    EXPECT_FALSE(piece.empty());
    first = piece.data();
    seen.insert(seen.end(), piece.begin(), piece.end());
  }
  Bytes seen;
  const std::byte* first = nullptr;

 private:
  size_t granule_;
};

Bytes numbered(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

TEST(Carry, hands_on_whole_granules_however_the_bytes_arrive) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const size_t granule = 1 + random() % 40;
    const Bytes sent = numbered(granule * (1 + random() % 50));
    Whole consumer(granule);
    const RecvRequest request{.bytes = sent.size(), .granule = granule, .consumer = &consumer};
    Carry carry;
    for (size_t at = 0; at < sent.size();) {
      const size_t size = std::min<size_t>(random() % 90, sent.size() - at);
      at += size;
      carry.deliver(request, at, std::span(sent).subspan(at - size, size));
      EXPECT_LT(carry.size(), granule);
      EXPECT_EQ(consumer.seen.size() + carry.size(), at);
    }
    EXPECT_EQ(consumer.seen, sent);
    EXPECT_EQ(carry.size(), 0u);
  }
}

TEST(Carry, in_front_of_a_piece_is_handed_on_with_it_in_one) {
  const Bytes sent = numbered(20);
  Whole consumer(8);
  const RecvRequest request{.bytes = 24, .granule = 8, .consumer = &consumer};
  Carry carry;
  carry.deliver(request, 3, std::span(sent).first(3));
  Bytes room(20);
  std::ranges::copy(std::span(sent).subspan(3), room.begin() + 3);
  carry.prepend_to(room);
  carry.deliver(request, 20, room);
  EXPECT_EQ(consumer.first, room.data()) << "from the beginning of the room, whose alignment it has";
  EXPECT_EQ(consumer.seen, Bytes(sent.begin(), sent.begin() + 16));
  EXPECT_EQ(carry.size(), 4u);
}

TEST(Carry, is_not_used_where_nobody_consumes) {
  const Bytes sent = numbered(20);
  Bytes received(20);
  const RecvRequest request{.into = received.data(), .bytes = 20, .granule = 1};
  Carry carry;
  carry.deliver(request, 7, std::span(sent).first(7));
  carry.deliver(request, 20, std::span(sent).subspan(7));
  carry.deliver(request, 20, {});
  EXPECT_EQ(received, sent);
  EXPECT_EQ(carry.size(), 0u);
}

}  // namespace
}  // namespace rueda::transport::carry_test
