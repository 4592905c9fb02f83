#include "rueda/backend/local/exchange_plan.h"

#include <numeric>

#include "rueda/backend/packing.h"

namespace rueda::backend {
namespace {

constexpr size_t kLaneAlignment = 64;  // a cache line, and a multiple of every element
// Of what pays among more than two ranks.
constexpr size_t kLeastBroadcastBytes = 128 << 10;
constexpr size_t kMostAlltoallBytes = 32 << 20;  // given by a rank

size_t to_lines(size_t bytes) { return (bytes + kLaneAlignment - 1) / kLaneAlignment * kLaneAlignment; }

bool gives_all_the_same(Collective what) {
  return what == Collective::kAllgather || what == Collective::kBroadcast;
}

size_t sum_of(std::span<const int64_t> counts) {
  return static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
}

// The elements of one tensor that member `from` gives member `to`, and where they lie.
struct Region {
  size_t count = 0, input = 0, output = 0;
};

Region region_of(const schedule::Spec& spec, const Segment& segment, size_t ranks, size_t from, size_t to) {
  const std::span<const int64_t> counts = segment.counts;
  switch (spec.what) {
    case Collective::kAllgather:
      return {.count = static_cast<size_t>(counts[from]), .output = sum_of(counts.first(from))};
    case Collective::kReducescatter:
      return {.count = static_cast<size_t>(counts[to]), .input = sum_of(counts.first(to))};
    case Collective::kAlltoall: {
      const std::span<const int64_t> given = counts.subspan(from * ranks, ranks);
      Region region{.count = static_cast<size_t>(given[to]), .input = sum_of(given.first(to))};
      for (size_t before = 0; before < from; ++before)
        region.output += static_cast<size_t>(counts[before * ranks + to]);
      return region;
    }
    default:
      return {.count = from == static_cast<size_t>(spec.root) ? static_cast<size_t>(segment.count) : 0};
  }
}

// Elements of all tensors that one member gives another one.
size_t parcel_count(const schedule::Spec& spec, size_t ranks, size_t from, size_t to) {
  switch (spec.what) {
    case Collective::kAllgather:
      return static_cast<size_t>(spec.counts[from]);
    case Collective::kReducescatter:
      return static_cast<size_t>(spec.counts[to]);
    case Collective::kAlltoall:
      return static_cast<size_t>(spec.counts[from * ranks + to]);
    default:
      return from == static_cast<size_t>(spec.root) ? static_cast<size_t>(spec.count) : 0;
  }
}

size_t largest_parcel(const schedule::Spec& spec) {
  if (spec.what == Collective::kBroadcast) return static_cast<size_t>(spec.count);
  return spec.counts.empty() ? 0 : static_cast<size_t>(std::ranges::max(spec.counts));
}

// Streams to `to` and after it lie behind those before it.
size_t one_shot_begin(const schedule::Spec& spec, size_t ranks, size_t from, size_t to) {
  if (gives_all_the_same(spec.what)) return 0;
  size_t at = 0;
  for (size_t before = 0; before < to; ++before)
    at += to_lines(parcel_count(spec, ranks, from, before) * size_of(spec.dtype));
  return at;
}

bool fits_one_shot(const schedule::Spec& spec, size_t ranks) {
  const size_t element = size_of(spec.dtype);
  if (largest_parcel(spec) * element > kOneShotBytes) return false;
  if (gives_all_the_same(spec.what)) return true;
  const size_t givers = spec.what == Collective::kAlltoall ? ranks : 1;  // a reducescatter is alike for all
  for (size_t from = 0; from < givers; ++from)
    if (one_shot_begin(spec, ranks, from, ranks) > kOneShotBytes) return false;
  return true;
}

size_t lane_bytes(Collective what, size_t ranks) {
  return gives_all_the_same(what) ? kChunkBytes : kChunkBytes / ranks / kLaneAlignment * kLaneAlignment;
}

}  // namespace

bool ExchangePlan::can_plan(const schedule::Spec& spec, size_t ranks) {
  return largest_parcel(spec) * size_of(spec.dtype) / lane_bytes(spec.what, ranks) < kMostChunks;
}

// Among more than two ranks the root of a short broadcast over channels goes on before the others have come
// (4 ranks on 2 cores: 26 us and 37 us for 4 B and 64 KiB, here 54 us and 55 us), and a large alltoall needs
// one copy there (64 MiB: 18 ms, here 21 ms).
bool ExchangePlan::pays(const schedule::Spec& spec, size_t ranks) {
  if (ranks <= 2) return true;
  const size_t element = size_of(spec.dtype);
  if (spec.what == Collective::kBroadcast)  // 0: its size is not known yet
    return spec.count == 0 || static_cast<size_t>(spec.count) * element > kLeastBroadcastBytes;
  if (spec.what == Collective::kAlltoall) return sum_of(spec.counts) / ranks * element < kMostAlltoallBytes;
  return true;
}

void ExchangePlan::assign(const schedule::Spec& spec, const Group& group, std::span<const Segment> segments) {
  ranks_ = group.members.size();
  me_ = static_cast<size_t>(group.me);
  element_ = size_of(spec.dtype);
  is_shared_ = gives_all_the_same(spec.what);
  total_ = spec.what == Collective::kBroadcast ? static_cast<size_t>(spec.count) : sum_of(spec.counts);
  plan_parcels(spec, segments);
  plan_buffers(spec);
}

void ExchangePlan::plan_parcels(const schedule::Spec& spec, std::span<const Segment> segments) {
  outgoing_.resize(is_shared_ ? 1 : ranks_);
  incoming_.resize(ranks_);
  given_ = taken_ = 0;
  for (size_t member = 0; member < ranks_; ++member) {
    Parcel& in = incoming_[member];
    in.clear();
    for (size_t s = 0; s < segments.size(); ++s) {
      const Region region = region_of(spec, segments[s], ranks_, member, me_);
      in.add(s, region.count, region.input, region.output);
    }
    taken_ += in.count();
    if (member >= outgoing_.size()) continue;
    Parcel& out = outgoing_[member];
    out.clear();
    for (size_t s = 0; s < segments.size(); ++s) {
      const Region region = region_of(spec, segments[s], ranks_, me_, member);
      out.add(s, region.count, region.input, 0);
    }
    given_ += out.count();
  }
}

void ExchangePlan::plan_buffers(const schedule::Spec& spec) {
  const bool is_inline = largest_parcel(spec) * element_ <= kInlineBytes;
  algorithm_ = is_inline ? LocalAlgorithm::kInline
                         : (fits_one_shot(spec, ranks_) ? LocalAlgorithm::kOneShot : LocalAlgorithm::kStaged);
  lane_elements_ = lane_bytes(spec.what, ranks_) / element_;
  outgoing_chunks_ = 0;
  for (size_t to = 0; to < outgoing_.size(); ++to)
    if (is_shared_ || to != me_) outgoing_chunks_ = std::max(outgoing_chunks_, chunks_of(outgoing_[to]));
  one_shot_from_.assign(ranks_, 0);
  one_shot_to_.assign(ranks_, 0);
  if (algorithm_ != LocalAlgorithm::kOneShot) return;
  for (size_t member = 0; member < ranks_; ++member) {
    one_shot_from_[member] = one_shot_begin(spec, ranks_, member, me_);
    one_shot_to_[member] = one_shot_begin(spec, ranks_, me_, member);
  }
}

}  // namespace rueda::backend
