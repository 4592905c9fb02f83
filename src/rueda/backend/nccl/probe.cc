#include "rueda/backend/nccl/probe.h"

#include <algorithm>

#include "rueda/base/check.h"

namespace rueda::nccl {
namespace {

constexpr int64_t kLeast = 1 << 20;
constexpr double kLatencyShare = 0.2;  // of the time of a bucket, as for networks (runtime/backends.cc)

double micros(Nanos time) { return static_cast<double>(time) / kMicrosecond; }

}  // namespace

std::optional<size_t> Probe::next() const {
  if (made_ == kCalls) return std::nullopt;
  return kSizes[made_ % kSizes.size()];
}

void Probe::took(Nanos time) {
  RUEDA_CHECK(next().has_value(), "a call is measured once");
  Nanos& least = least_[made_ % kSizes.size()];
  const bool is_first = made_ < kSizes.size();
  if (!is_first) least = least == 0 ? time : std::min(least, time);
  ++made_;
}

void Probe::give_up() {
  has_given_up_ = true;
  took(0);
}

double Probe::us_per_byte() const {
  return std::max(0.0, micros(least_[2] - least_[1]) / static_cast<double>(kLarge - kMedium));
}

double Probe::latency_us() const {
  return std::max(micros(least_[0]), micros(least_[1]) - us_per_byte() * static_cast<double>(kMedium));
}

int64_t Probe::bucket_bytes(int64_t most) const {
  if (has_given_up_ || next()) return 0;
  // latency = share * (latency + bytes * us_per_byte)
  const double carried_us = latency_us() * (1 / kLatencyShare - 1);
  int64_t bytes = kLeast;
  while (bytes < most && static_cast<double>(bytes) * us_per_byte() < carried_us) bytes *= 2;
  return std::min(bytes, most);
}

}  // namespace rueda::nccl
