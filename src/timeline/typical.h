// What a rank does in most steps. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace rueda::timeline {

// The lower one of an even number; 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// The mean of many values without the longest twentieth, which may be of one event that says nothing about
// the others. Memory is bounded: of more than kMost values, evenly spread ones are kept.
class Typical {
 public:
  static constexpr size_t kMost = 4'096;

  void add(double value) {
    if (count_++ % stride_ != 0) return;
    if (kept_.size() == kMost) {
      for (size_t i = 1; 2 * i < kMost; ++i) kept_[i] = kept_[2 * i];
      kept_.resize(kMost / 2);
      stride_ *= 2;
      if ((count_ - 1) % stride_ != 0) return;
    }
    kept_.push_back(static_cast<float>(value));
  }
  [[nodiscard]] double mean() const {
    if (kept_.empty()) return 0;
    std::vector<float> values = kept_;
    const size_t left_out = values.size() < kFew ? 0 : (values.size() + kPart - 1) / kPart;
    const auto end = values.end() - static_cast<std::ptrdiff_t>(left_out);
    std::ranges::nth_element(values, end);
    return std::accumulate(values.begin(), end, 0.0) / static_cast<double>(values.size() - left_out);
  }

 private:
  static constexpr size_t kFew = 10, kPart = 20;

  std::vector<float> kept_;
  int64_t count_ = 0, stride_ = 1;
};

}  // namespace rueda::timeline
