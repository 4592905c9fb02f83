#include "rueda/runtime/residuals.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "rueda/control/numbered_name.h"

namespace rueda::runtime {
namespace {

// FNV-1a: the same on all machines.
uint64_t hash_of(std::string_view name) {
  uint64_t hash = 14695981039346656037U;
  for (const char byte : name) hash = (hash ^ static_cast<uint8_t>(byte)) * 1099511628211U;
  return hash ^ (hash >> 32);
}

// The first bytes of what save() returns: "rueda", 0, and the version of the format.
constexpr uint64_t kSavedMagic = 0x0001'0061'6465'7572;
// Of a factor that is saved: from one end of the scales to the other. Infinities would spread.
constexpr double kMostPending = ResidualStore::kMostScale * ResidualStore::kMostScale * 1.001;

size_t whole_blocks(int64_t count) {
  return static_cast<size_t>((count + kWireBlock - 1) / kWireBlock * kWireBlock);
}

}  // namespace

Status ResidualStore::attach(Batch& batch) {
  const std::lock_guard lock(mutex_);
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

Status ResidualStore::attach(backend::Segment& segment, Key key) {
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
  bytes_ -= bytes * static_cast<int64_t>(elements);
  kept = {};  // the next call tries again
  return {Code::kUnavailable, "no memory for what encoding leaves behind of tensor " + name +
                                  "; leave out its wire type, or use a machine with more memory."};
}

void ResidualStore::drop(int32_t process_set) {
  const std::lock_guard lock(mutex_);
  const auto first = kept_.lower_bound({process_set, std::string()});
  auto last = first;
  for (; last != kept_.end() && last->first.first == process_set; ++last)
    bytes_ -= static_cast<int64_t>(2 * sizeof(float) * whole_blocks(last->second.count));
  kept_.erase(first, last);
}

bool ResidualStore::rescale(double factor) {
  double now = scale_.load(std::memory_order_relaxed);
  do {
    if (!(now * factor >= 1 / kMostScale && now * factor <= kMostScale)) return false;
  } while (!scale_.compare_exchange_weak(now, now * factor, std::memory_order_relaxed));
  return true;
}

// ---- carrying residuals to another epoch ----

struct ResidualStore::Saved {
  Key key;
  uint64_t placement = 0;
  int64_t count = 0;   // 0: the tensor had no residual
  double pending = 1;  // factor that rescale() asked for and no call has applied
  struct Block {
    uint32_t index = 0;
    std::span<const std::byte> values;
  };
  std::vector<Block> sent, owned;
};

Bytes ResidualStore::save(const Wanted& wanted, const Placements& placements) const {
  const std::lock_guard lock(mutex_);
  ByteWriter to;
  to.put(kSavedMagic);
  to.put(static_cast<uint8_t>(wanted.is_all));
  if (wanted.is_all) {
    to.put(static_cast<uint32_t>(kept_.size()));
    for (const auto& [key, kept] : kept_) put(to, key, &kept, placements(key.first));
    return std::move(to).take();
  }
  to.put(static_cast<uint32_t>(wanted.names.size()));
  for (const std::string& name : wanted.names) {
    const auto at = kept_.find({wanted.process_set, name});
    put(to, {wanted.process_set, name}, at == kept_.end() ? nullptr : &at->second,
        placements(wanted.process_set));
  }
  return std::move(to).take();
}

void ResidualStore::put(ByteWriter& to, const Key& key, const Kept* kept, uint64_t placement) const {
  to.put(key.first);
  to.put_string(key.second);
  to.put(placement);
  to.put(kept == nullptr ? int64_t{0} : kept->count);
  if (kept == nullptr || kept->count == 0) return;
  to.put(scale_.load(std::memory_order_relaxed) / kept->scale);
  for (const float* const values : {kept->sent.get(), kept->owned.get()}) {
    const auto blocks = static_cast<uint32_t>(whole_blocks(kept->count) / kWireBlock);
    std::vector<uint32_t> filled;
    for (uint32_t i = 0; i < blocks; ++i)
      if (std::any_of(values + i * kWireBlock, values + (i + 1) * kWireBlock,
                      [](float value) { return std::bit_cast<uint32_t>(value) != 0; }))
        filled.push_back(i);
    to.put_list(filled, [&](ByteWriter& writer, uint32_t index) {
      writer.put(index);
      writer.put_raw(std::as_bytes(std::span(values + size_t{index} * kWireBlock, kWireBlock)));
    });
  }
}

std::optional<std::vector<ResidualStore::Saved>> ResidualStore::parse(ByteReader& from) const {
  auto all = from.get_list(std::numeric_limits<uint32_t>::max(), [](ByteReader& reader) {
    Saved saved;
    saved.key.first = reader.get<int32_t>();
    saved.key.second = reader.get_string(size_t{1} << 20);
    saved.placement = reader.get<uint64_t>();
    saved.count = reader.get<int64_t>();
    if (saved.count == 0) return saved;
    saved.pending = reader.get<double>();
    for (auto* const blocks : {&saved.sent, &saved.owned})
      *blocks = reader.get_list(std::numeric_limits<uint32_t>::max(), [](ByteReader& one) {
        const auto index = one.get<uint32_t>();
        return Saved::Block{.index = index, .values = one.get_raw(kWireBlock * sizeof(float))};
      });
    return saved;
  });
  if (!from.is_ok()) return std::nullopt;
  for (const Saved& saved : all) {
    if (saved.count < 0 || saved.count > most_elements_) return std::nullopt;
    if (saved.count > 0 && !(saved.pending >= 1 / kMostPending && saved.pending <= kMostPending))
      return std::nullopt;
    for (const auto* const blocks : {&saved.sent, &saved.owned})
      for (const Saved::Block& block : *blocks)
        if ((size_t{block.index} + 1) * kWireBlock > whole_blocks(saved.count)) return std::nullopt;
  }
  return all;
}

Result<ResidualStore::Restored> ResidualStore::restore(std::span<const std::byte> saved,
                                                       const Placements& placements) {
  ByteReader from(saved);
  const bool is_ours = from.get<uint64_t>() == kSavedMagic;
  const bool is_all = from.get<uint8_t>() != 0;
  const auto all = parse(from);
  if (!is_ours || !all || !from.is_at_end())
    return Status{Code::kInvalidArgument,
                  "these bytes are not what was saved of residuals, or are cut off; leave them out, and "
                  "feedback begins anew."};
  const std::lock_guard lock(mutex_);
  if (is_all)
    for (auto& [key, kept] : kept_) clear(kept);
  Restored done;
  for (const Saved& one : *all) {
    if (const auto at = kept_.find(one.key); at != kept_.end()) clear(at->second);
    if (one.count == 0) continue;
    const bool is_elsewhere = one.placement == 0 || one.placement != placements(one.key.first);
    if (is_elsewhere || has_other_size(one)) {
      ++done.dropped;
      continue;
    }
    if (Status s = take(one); !s.is_ok()) return s;
    ++done.tensors;
  }
  return done;
}

// Learned plans hold the memory of the tensor as it is now.
bool ResidualStore::has_other_size(const Saved& saved) const {
  const auto at = kept_.find(saved.key);
  return at != kept_.end() && at->second.count != 0 && at->second.count != saved.count;
}

// Memory stays where it is, because learned plans hold it.
Status ResidualStore::take(const Saved& saved) {
  Kept& kept = kept_[saved.key];
  if (kept.count != saved.count)
    if (Status s = begin(kept, saved.count, saved.key.second); !s.is_ok()) return s;
  kept.scale = scale_.load(std::memory_order_relaxed) / saved.pending;
  for (const Saved::Block& block : saved.sent)
    std::memcpy(kept.sent.get() + size_t{block.index} * kWireBlock, block.values.data(), block.values.size());
  for (const Saved::Block& block : saved.owned)
    std::memcpy(kept.owned.get() + size_t{block.index} * kWireBlock, block.values.data(),
                block.values.size());
  return Status::ok();
}

void ResidualStore::clear(Kept& kept) {
  for (float* const values : {kept.sent.get(), kept.owned.get()})
    if (values != nullptr) std::fill_n(values, whole_blocks(kept.count), 0.0F);
}

}  // namespace rueda::runtime
