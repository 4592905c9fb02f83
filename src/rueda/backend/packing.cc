#include "rueda/backend/packing.h"

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "rueda/backend/segments.h"

namespace rueda::backend {
namespace {

constexpr size_t kLine = 64;  // bytes

size_t round_up(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

int64_t total(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

void store(const Segment& segment, int64_t begin, const std::byte* from, size_t bytes, size_t element) {
  if (segment.output == nullptr || bytes == 0) return;
  std::memcpy(static_cast<std::byte*>(segment.output) + static_cast<size_t>(begin) * element, from, bytes);
}

// Calls f(segment, its first element, elements) for the parts of all segments, one member after the other.
template <class F>
void for_members(const Call& call, const F& f) {
  std::vector<int64_t> begins(call.segments.size(), 0);
  for (Rank member = 0; member < call.group->size(); ++member) {
    for (size_t s = 0; s < call.segments.size(); ++s) {
      const int64_t count = call.segments[s].counts[static_cast<size_t>(member)];
      f(call.segments[s], begins[s], count);
      begins[s] += count;
    }
  }
}

void pack_input(const Call& call, std::byte* to) {
  const size_t element = size_of(call.spec.dtype);
  const auto add = [&](const Segment& segment, int64_t begin, int64_t count) {
    load(call.spec, call.prescale, segment, static_cast<size_t>(begin), static_cast<size_t>(count), to);
    to += static_cast<size_t>(count) * element;
  };
  // Destination-major: what member 0 receives of every tensor, then the same for member 1, and so on.
  if (call.spec.what == Collective::kReducescatter) return for_members(call, add);
  for (const Segment& segment : call.segments)
    add(segment, 0, elements_given(call.spec.what, segment, call.group->me, call.group->size()));
}

void unpack_output(const Call& call, const std::byte* from) {
  const size_t element = size_of(call.spec.dtype);
  const auto take = [&](const Segment& segment, int64_t begin, int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * element;
    store(segment, begin, from, bytes, element);
    from += bytes;
  };
  // Source-major: the parts of all tensors that come from member 0, then those from member 1, and so on.
  if (call.spec.what == Collective::kAllgather) return for_members(call, take);
  for (const Segment& segment : call.segments)
    take(segment, 0, elements_taken(call.spec.what, segment, call.group->me, call.group->size()));
}

}  // namespace

int64_t elements_given(Collective what, const Segment& segment, Rank me, Rank n) {
  const auto mine = static_cast<size_t>(me), members = static_cast<size_t>(n);
  if (what == Collective::kAllgather) return segment.counts[mine];
  if (what == Collective::kAlltoall) return total(segment.counts.subspan(mine * members, members));
  return segment.count;
}

int64_t elements_taken(Collective what, const Segment& segment, Rank me, Rank n) {
  const auto mine = static_cast<size_t>(me), members = static_cast<size_t>(n);
  switch (what) {
    case Collective::kAllgather:
      return total(segment.counts);
    case Collective::kReducescatter:
      return segment.counts[mine];
    case Collective::kAlltoall: {
      int64_t count = 0;
      for (size_t from = 0; from < members; ++from) count += segment.counts[from * members + mine];
      return count;
    }
    default:
      return segment.count;
  }
}

bool Packing::is_needed(const Call& call) {
  if (call.spec.what == Collective::kBarrier) return false;
  if (call.segments.size() != 1) return true;
  const Segment& only = call.segments.front();
  const bool has_joined = only.input == nullptr && only.output == nullptr;
  return has_joined || (is_reduction(call.spec.what) && call.prescale != 1.0);
}

Status Packing::pack(const Call& call, bool is_copied) {
  is_packed_ = is_needed(call) || is_copied;
  if (!is_packed_) {
    buffer_.pass();
    const bool has_one = call.segments.size() == 1;  // a barrier has no memory
    input_ = has_one ? static_cast<const std::byte*>(call.segments.front().input) : nullptr;
    output_ = has_one ? static_cast<std::byte*>(call.segments.front().output) : nullptr;
    return Status::ok();
  }
  int64_t given = 0, taken = 0;
  for (const Segment& segment : call.segments) {
    given += elements_given(call.spec.what, segment, call.group->me, call.group->size());
    taken += elements_taken(call.spec.what, segment, call.group->me, call.group->size());
  }
  const size_t element = size_of(call.spec.dtype);
  const size_t in_bytes = static_cast<size_t>(given) * element;
  const bool is_in_place = call.spec.what == Collective::kAllreduce;
  const size_t out_begin = is_in_place ? 0 : round_up(in_bytes);
  const size_t bytes = is_in_place ? in_bytes : out_begin + static_cast<size_t>(taken) * element;
  const Result<std::byte*> buffer = buffer_.reserve(bytes);
  if (!buffer.is_ok()) return buffer.status();
  call.note(Activity::kPack);
  pack_input(call, buffer.value());
  input_ = buffer.value();
  output_ = buffer.value() + out_begin;
  return Status::ok();
}

void Packing::clear() {
  is_packed_ = false;
  input_ = nullptr;
  output_ = nullptr;
}

void Packing::unpack(const Call& call) {
  if (!is_packed_) return;
  call.note(Activity::kUnpack);
  unpack_output(call, output_);
}

}  // namespace rueda::backend
