// Copies past the caches give the bytes of an ordinary copy, whatever the place and the size.
#include "rueda/backend/local/streaming_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace rueda::backend::streaming_copy_test {
namespace {

TEST(StreamingCopy, writes_what_it_should_and_nothing_beside_it) {
  constexpr std::byte kBeside{0x5a};
  std::vector<std::byte> from(1000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (const size_t bytes : {0u, 1u, 15u, 63u, 64u, 65u, 127u, 128u, 200u, 700u})
    for (size_t to_begin = 0; to_begin < 70; to_begin += 3)
      for (const size_t from_begin : {0u, 1u, 8u, 63u}) {
        std::vector<std::byte> to(1000, kBeside);
        streaming_copy(to.data() + to_begin, from.data() + from_begin, bytes);
        for (size_t i = 0; i < to.size(); ++i) {
          const bool is_inside = i >= to_begin && i < to_begin + bytes;
          ASSERT_EQ(to[i], is_inside ? from[from_begin + i - to_begin] : kBeside)
              << bytes << " bytes from " << from_begin << " to " << to_begin << ", byte " << i;
        }
      }
}

}  // namespace
}  // namespace rueda::backend::streaming_copy_test
