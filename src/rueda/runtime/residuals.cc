#include "rueda/runtime/residuals.h"

#include <cstdlib>

#include "rueda/control/numbered_name.h"

namespace rueda::runtime {
namespace {

// FNV-1a: the same on all machines.
uint64_t hash_of(std::string_view name) {
  uint64_t hash = 14695981039346656037U;
  for (const char byte : name) hash = (hash ^ static_cast<uint8_t>(byte)) * 1099511628211U;
  return hash ^ (hash >> 32);
}

size_t whole_blocks(int64_t count) {
  return static_cast<size_t>((count + kWireBlock - 1) / kWireBlock * kWireBlock);
}

}  // namespace

Status ResidualStore::attach(Batch& batch) {
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    const control::Entry& entry = batch.bucket->entries[i];
    backend::Segment& segment = batch.segments[i];
    if (const auto name = control::split_name(entry.name, entry.numbered_at)) {
      std::string key;
      name->put_key(key);
      segment.name_hash = hash_of(key);
      continue;
    }
    segment.name_hash = hash_of(entry.name);
    const std::optional<TensorRef>& mine = batch.tensors[i].ref;
    if (mine && !mine->tensor().has_feedback) continue;
    if (Status s = attach(segment, {batch.bucket->process_set, entry.name}); !s.is_ok()) return s;
  }
  return Status::ok();
}

Status ResidualStore::attach(backend::Segment& segment, std::pair<int32_t, std::string> key) {
  const auto at = kept_.try_emplace(std::move(key)).first;
  Kept& kept = at->second;
  if (kept.count != segment.count)
    if (Status s = begin(kept, segment.count, at->first.second); !s.is_ok()) return s;
  if (const double scale = scale_.load(std::memory_order_relaxed); scale != kept.scale) {
    const auto factor = static_cast<float>(scale / kept.scale);
    for (float* const values : {kept.sent.get(), kept.owned.get()})
      for (size_t i = 0; i < whole_blocks(kept.count); ++i) values[i] *= factor;
    kept.scale = scale;
  }
  segment.residual = {.sent = kept.sent.get(), .owned = kept.owned.get()};
  return Status::ok();
}

// Pages that stay zero take no memory: a rank encodes only a part of a tensor for its host, and owns another.
Status ResidualStore::begin(Kept& kept, int64_t count, const std::string& name) {
  const size_t elements = whole_blocks(count);
  kept.sent.reset(static_cast<float*>(std::calloc(elements, sizeof(float))));
  kept.owned.reset(static_cast<float*>(std::calloc(elements, sizeof(float))));
  const auto bytes = static_cast<int64_t>(2 * sizeof(float));
  bytes_ += bytes * (static_cast<int64_t>(elements) - static_cast<int64_t>(whole_blocks(kept.count)));
  kept.count = count;
  kept.scale = scale_.load(std::memory_order_relaxed);
  if (kept.sent != nullptr && kept.owned != nullptr) return Status::ok();
  return {Code::kUnavailable, "no memory for what encoding leaves behind of tensor " + name +
                                  "; leave out its wire type, or use a machine with more memory."};
}

void ResidualStore::drop(int32_t process_set) {
  const auto first = kept_.lower_bound({process_set, std::string()});
  auto last = first;
  for (; last != kept_.end() && last->first.first == process_set; ++last)
    bytes_ -= static_cast<int64_t>(2 * sizeof(float) * whole_blocks(last->second.count));
  kept_.erase(first, last);
}

void ResidualStore::rescale(double factor) {
  double now = scale_.load(std::memory_order_relaxed);
  while (!scale_.compare_exchange_weak(now, now * factor, std::memory_order_relaxed)) {
  }
}

}  // namespace rueda::runtime
