// The scalar definition of encoded blocks, one element at a time, and of a sum between hosts in one process.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels_reference.h"
#include "rueda/base/types.h"

namespace rueda::wire_test {

// What the others decode of the block v, and what is left behind in v.
inline std::vector<float> send_block(Wire wire, std::vector<float>& v) {
  std::vector<float> kept(v.size());
  float largest = 0;
  bool is_finite = true;
  for (const float value : v) {
    largest = std::max(largest, std::abs(value));
    is_finite &= std::isfinite(value);
  }
  if (wire == Wire::kInt8) {
    is_finite &= largest <= 3.4e38F;
    const bool is_scaled = largest >= 1e-30F;
    const float scale = largest / 127.0F, reciprocal = 127.0F / largest;
    for (size_t i = 0; i < v.size(); ++i)
      kept[i] = is_scaled ? static_cast<float>(std::lrint(v[i] * reciprocal)) * scale : 0.0F;
  } else {
    const int bits = wire == Wire::kFloat16 ? 10 : 7;
    for (size_t i = 0; i < v.size(); ++i) {
      kept[i] = kernels_test::widen16(kernels_test::narrow16(v[i], bits), bits);
      is_finite &= std::isfinite(kept[i]);
    }
  }
  for (size_t i = 0; i < v.size(); ++i) {
    if (!is_finite) kept[i] = std::numeric_limits<float>::quiet_NaN();
    v[i] = is_finite ? v[i] - kept[i] : 0.0F;
  }
  return kept;
}

// The same for all blocks of a tensor. errors: as long as v; updated.
inline std::vector<float> send(Wire wire, const std::vector<float>& values, std::vector<float>& errors) {
  std::vector<float> kept;
  for (size_t begin = 0; begin < values.size(); begin += static_cast<size_t>(kWireBlock)) {
    const size_t end = std::min(values.size(), begin + static_cast<size_t>(kWireBlock));
    std::vector<float> block;
    for (size_t i = begin; i < end; ++i) block.push_back(values[i] + errors[i]);
    const std::vector<float> sent = send_block(wire, block);
    std::copy(block.begin(), block.end(), errors.begin() + static_cast<std::ptrdiff_t>(begin));
    kept.insert(kept.end(), sent.begin(), sent.end());
  }
  return kept;
}

// One tensor over many steps: the errors of every host, and of the owners.
struct Model {
  Wire wire = Wire::kInt8;
  std::vector<std::vector<float>> sent;  // [host]
  std::vector<float> owned;

  // partials: the exact sum of each host.
  std::vector<float> sum(const std::vector<std::vector<float>>& partials) {
    const size_t count = partials.front().size();
    sent.resize(partials.size(), std::vector<float>(count, 0.0F));
    owned.resize(count, 0.0F);
    std::vector<float> total;
    for (size_t host = 0; host < partials.size(); ++host) {
      const std::vector<float> part = send(wire, partials[host], sent[host]);
      if (host == 0) total = part;
      for (size_t i = 0; host > 0 && i < count; ++i) total[i] += part[i];
    }
    return send(wire, total, owned);
  }
};

inline bool is_equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace rueda::wire_test
