// Copies into memory that nobody reads soon, without bringing it into the caches. Any thread.
#pragma once

#include <cstddef>

namespace rueda::backend {

// An ordinary copy first reads each cache line that it is going to write. Results that exceed the caches
// several times are written with less traffic to memory without that; smaller ones would have to be fetched
// again.
inline constexpr size_t kStreamedFromBytes = 16 << 20;  // of a call, on one rank

// The same bytes as memcpy. What other threads read after a later store of this thread is complete.
void streaming_copy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace rueda::backend
