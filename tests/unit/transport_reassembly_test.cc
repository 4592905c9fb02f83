#include "rueda/transport/reassembly.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace rueda::transport::reassembly_test {
namespace {

// Checks that pieces come in order and in whole units.
class Whole final : public Consumer {
 public:
  explicit Whole(size_t unit_bytes) : unit_bytes_(unit_bytes) {}
  void consume(size_t offset, std::span<const std::byte> piece) override {
    EXPECT_EQ(offset, seen.size());
    EXPECT_EQ(piece.size() % unit_bytes_, 0u);
    EXPECT_FALSE(piece.empty());
    first = piece.data();
    seen.insert(seen.end(), piece.begin(), piece.end());
  }
  Bytes seen;
  const std::byte* first = nullptr;

 private:
  size_t unit_bytes_;
};

Bytes numbered(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

TEST(Reassembly, hands_on_whole_units_however_the_bytes_arrive) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const size_t unit_bytes = 1 + random() % 40;
    const Bytes sent = numbered(unit_bytes * (1 + random() % 50));
    Whole consumer(unit_bytes);
    const RecvRequest request{.bytes = sent.size(), .unit_bytes = unit_bytes, .consumer = &consumer};
    Reassembly reassembly;
    for (size_t at = 0; at < sent.size();) {
      const size_t size = std::min<size_t>(random() % 90, sent.size() - at);
      at += size;
      reassembly.deliver(request, at, std::span(sent).subspan(at - size, size));
      EXPECT_LT(reassembly.size(), unit_bytes);
      EXPECT_EQ(consumer.seen.size() + reassembly.size(), at);
    }
    EXPECT_EQ(consumer.seen, sent);
    EXPECT_EQ(reassembly.size(), 0u);
  }
}

TEST(Reassembly, in_front_of_a_piece_is_handed_on_with_it_in_one) {
  const Bytes sent = numbered(20);
  Whole consumer(8);
  const RecvRequest request{.bytes = 24, .unit_bytes = 8, .consumer = &consumer};
  Reassembly reassembly;
  reassembly.deliver(request, 3, std::span(sent).first(3));
  Bytes room(20);
  std::ranges::copy(std::span(sent).subspan(3), room.begin() + 3);
  reassembly.prepend_to(room);
  reassembly.deliver(request, 20, room);
  EXPECT_EQ(consumer.first, room.data()) << "from the beginning of the room, whose alignment it has";
  EXPECT_EQ(consumer.seen, Bytes(sent.begin(), sent.begin() + 16));
  EXPECT_EQ(reassembly.size(), 4u);
}

TEST(Reassembly, is_not_used_where_nobody_consumes) {
  const Bytes sent = numbered(20);
  Bytes received(20);
  const RecvRequest request{.into = received.data(), .bytes = 20, .unit_bytes = 1};
  Reassembly reassembly;
  reassembly.deliver(request, 7, std::span(sent).first(7));
  reassembly.deliver(request, 20, std::span(sent).subspan(7));
  reassembly.deliver(request, 20, {});
  EXPECT_EQ(received, sent);
  EXPECT_EQ(reassembly.size(), 0u);
}

}  // namespace
}  // namespace rueda::transport::reassembly_test
