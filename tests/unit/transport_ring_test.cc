#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>

#include "rueda/base/bytes.h"
#include "rueda/transport/shm/ring_mapping.h"

namespace rueda::transport::ring_test {
namespace {

struct Pair {
  explicit Pair(size_t bytes) : data(bytes), writer(control, data), reader(control, data) {}
  RingControl control{};
  Bytes data;
  RingWriter writer;
  RingReader reader;
};

TEST(Ring, bytes_come_out_as_they_went_in_across_many_wraps) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Pair ring(1024);
  for (int i = 0; i < 2000; ++i) {
    Bytes in(random() % ring.writer.room(1024));
    for (std::byte& b : in) b = static_cast<std::byte>(random());
    ring.writer.put(in);
    EXPECT_EQ(ring.reader.available(1), 0u) << "nothing is seen before it is published";
    ring.writer.publish();
    Bytes out;
    ring.reader.available(1024);
    while (out.size() < in.size()) {
      const auto piece = ring.reader.peek(in.size() - out.size());
      ASSERT_FALSE(piece.empty());
      out.insert(out.end(), piece.begin(), piece.end());
      ring.reader.skip(piece.size());
    }
    EXPECT_TRUE(in == out);
    ring.reader.publish();
    ASSERT_EQ(ring.writer.room(1024), 1024u);
  }
}

TEST(Ring, a_full_ring_has_no_room_until_the_reader_publishes) {
  Pair ring(256);
  ring.writer.put(Bytes(256));
  ring.writer.publish();
  EXPECT_EQ(ring.writer.room(64), 0u);
  EXPECT_EQ(ring.reader.available(64), 256u);
  ring.reader.skip(64);
  EXPECT_EQ(ring.writer.room(64), 0u);
  ring.reader.publish();
  EXPECT_EQ(ring.writer.room(64), 64u);
}

TEST(Ring, a_head_that_cannot_be_is_a_fault_and_not_an_address) {
  for (const uint64_t head : {uint64_t{1}, uint64_t{320}, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{63}}) {
    Pair ring(256);
    ring.control.head = head;
    EXPECT_EQ(ring.reader.available(1), 0u);
    EXPECT_TRUE(ring.reader.is_broken()) << head;
  }
  Pair back(256);
  back.writer.put(Bytes(128));
  back.writer.publish();
  EXPECT_EQ(back.reader.available(1), 128u);
  back.control.head = 64;
  EXPECT_EQ(back.reader.available(256), 128u);
  EXPECT_TRUE(back.reader.is_broken()) << "positions never go back";
}

TEST(Ring, a_tail_that_cannot_be_is_a_fault_and_not_an_address) {
  for (const uint64_t tail : {uint64_t{1}, uint64_t{320}, ~uint64_t{0}, uint64_t{192}}) {
    Pair ring(256);
    ring.writer.put(Bytes(128));
    ring.control.tail = tail;
    EXPECT_EQ(ring.writer.room(256), 128u);
    EXPECT_TRUE(ring.writer.is_broken()) << tail;
  }
}

TEST(RingMapping, both_ends_see_the_same_memory) {
  RingMapping mine = RingMapping::create(4096).value();
  RingMapping theirs = RingMapping::adopt(UniqueFd(dup(mine.fd()))).value();
  mine.ring(1)[4095] = std::byte{7};
  mine.control().rings[0].head = 64;
  EXPECT_EQ(theirs.ring(1)[4095], std::byte{7});
  EXPECT_EQ(theirs.ring(1).size(), 4096u);
  EXPECT_EQ(theirs.control().rings[0].head, 64u);
}

TEST(RingMapping, nobody_can_change_its_size) {
  const RingMapping mapping = RingMapping::create(4096).value();
  EXPECT_NE(ftruncate(mapping.fd(), 0), 0);
  EXPECT_NE(ftruncate(mapping.fd(), 1 << 20), 0);
}

TEST(RingMapping, memory_that_could_be_pulled_away_is_refused) {
  UniqueFd open_ended(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open_ended.get(), 4096 * 3), 0);
  EXPECT_EQ(RingMapping::adopt(std::move(open_ended)).status().code, Code::kPermissionDenied);
  EXPECT_EQ(RingMapping::adopt(UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC))).status().code,
            Code::kPermissionDenied);
}

TEST(RingMapping, memory_of_an_impossible_size_is_refused) {
  for (const off_t size : {0, 1, 4096, 4096 + 2 * 2048, 4096 + 2 * 5000, 4096 * 3 + 1}) {
    UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(fd.get(), size), 0);
    ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    EXPECT_EQ(RingMapping::adopt(std::move(fd)).status().code, Code::kPermissionDenied) << size;
  }
}

}  // namespace
}  // namespace rueda::transport::ring_test
