#include "rueda/control/priority_queue.h"

#include <algorithm>
#include <limits>

#include "rueda/base/check.h"
#include "rueda/control/fusion.h"

namespace rueda::control {
namespace {

// How many tensors of another kind the search for one bucket may pass.
constexpr int kMaxPassed = 64;

}  // namespace

void PriorityQueue::add(Candidate candidate) {
  // -INT32_MIN would overflow.
  candidate.priority = std::max(candidate.priority, -std::numeric_limits<int32_t>::max());
  waiting_.emplace(SortKey{-candidate.priority, arrivals_++}, std::move(candidate));
}

Bucket PriorityQueue::take(int64_t bucket_bytes) {
  RUEDA_CHECK(!waiting_.empty(), "an empty priority queue has no bucket");
  Candidate first = std::move(waiting_.extract(waiting_.begin()).mapped());
  int64_t left = bucket_bytes - std::min(first.bytes, bucket_bytes);
  int passed = 0;
  for (auto next = waiting_.begin(); next != waiting_.end() && passed < kMaxPassed;) {
    const bool is_alike = can_share(first, next->second);
    if (is_alike && next->second.bytes > left) break;
    if (!is_alike) {
      ++passed;
      ++next;
      continue;
    }
    left -= next->second.bytes;
    first.bucket.entries.push_back(std::move(next->second.bucket.entries[0]));
    next = waiting_.erase(next);
  }
  return std::move(first.bucket);
}

}  // namespace rueda::control
