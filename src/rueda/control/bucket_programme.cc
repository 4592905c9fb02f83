#include "rueda/control/bucket_programme.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace rueda::control {
namespace {

class Costs {
 public:
  // The function is asked for powers of two alone; between them it is taken for a line.
  explicit Costs(const BucketCosts& costs) : packing_ns_(costs.packing_ns) {
    for (int64_t bytes = 1; bytes <= kMost; bytes *= 2) call_us_.push_back(costs.call_us(bytes));
  }
  [[nodiscard]] Nanos of(int64_t bytes, bool is_packed) const {
    const int64_t within = std::clamp<int64_t>(bytes, 1, kMost);
    const auto below =
        std::min(static_cast<size_t>(std::bit_width(static_cast<uint64_t>(within)) - 1), call_us_.size() - 2);
    const double share = static_cast<double>(within) / std::exp2(static_cast<double>(below)) - 1;
    const double us = call_us_[below] + share * (call_us_[below + 1] - call_us_[below]);
    const double packing = is_packed ? packing_ns_ * static_cast<double>(bytes) : 0;
    return static_cast<Nanos>(us * 1e3 + packing);
  }

 private:
  static constexpr int64_t kMost = int64_t{1} << 36;  // more than any bucket
  std::vector<double> call_us_;                       // [logarithm]
  double packing_ns_;
};

}  // namespace

BucketProgramme best_buckets(std::span<const ReadyTensor> tensors, const BucketCosts& costs) {
  const Costs cost(costs);
  const size_t n = tensors.size();
  std::vector<Nanos> end(n + 1, 0);     // [k] when the first k tensors are there
  std::vector<size_t> begin(n + 1, 0);  // [k] with which tensor the last bucket of these begins
  Nanos ready = 0;
  for (size_t last = 0; last < n; ++last) {
    ready = std::max(ready, tensors[last].ready);
    end[last + 1] = std::numeric_limits<Nanos>::max();
    int64_t bytes = 0;
    for (size_t first = last + 1; first-- > tensors[last].first;) {
      bytes += tensors[first].bytes;
      if (bytes > costs.most_bytes && first != last) break;
      const Nanos there = std::max(end[first], ready) + cost.of(bytes, first != last);
      if (there > end[last + 1]) continue;
      end[last + 1] = there;
      begin[last + 1] = first;
    }
  }
  BucketProgramme best{.begins = std::vector<bool>(n, false), .end = end[n]};
  for (size_t k = n; k > 0; k = begin[k]) best.begins[begin[k]] = true;
  return best;
}

Nanos end_of(std::span<const ReadyTensor> tensors, const std::vector<bool>& begins,
             const BucketCosts& costs) {
  const Costs cost(costs);
  Nanos end = 0, ready = 0;
  for (size_t first = 0; first < tensors.size();) {
    int64_t bytes = 0;
    size_t next = first;
    do {
      ready = std::max(ready, tensors[next].ready);
      bytes += tensors[next].bytes;
    } while (++next < tensors.size() && !begins[next]);
    end = std::max(end, ready) + cost.of(bytes, next - first > 1);
    first = next;
  }
  return end;
}

}  // namespace rueda::control
