#include "rueda/backend/device_packing.h"

#include <algorithm>

#include "rueda/backend/packing.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend {
namespace {

// Tensors begin at multiples of this in the buffer: kernels copy 16 bytes at once, and devices fetch 128. The
// gaps are reduced as well and mean nothing.
constexpr size_t kPlaceAlignment = 128;
constexpr size_t kIdentityBytes = 256 << 10;

size_t place_bytes(size_t bytes) { return (bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment; }

bool has_joined(const Segment& segment) { return segment.input == nullptr && segment.output == nullptr; }

}  // namespace

size_t packed_at_once(DType dtype, std::span<const Segment> tensors, size_t pack_bytes) {
  size_t count = 0, bytes = 0;
  for (; count < tensors.size(); ++count) {
    bytes += place_bytes(static_cast<size_t>(tensors[count].count) * size_of(dtype));
    if (bytes > pack_bytes) break;
  }
  return std::max<size_t>(count, 1);
}

size_t bytes_of_run(DType dtype, std::span<const Segment> tensors) {
  size_t bytes = 0;
  for (const Segment& tensor : tensors) {
    const size_t exact = static_cast<size_t>(tensor.count) * size_of(dtype);
    bytes += tensors.size() == 1 ? exact : place_bytes(exact);
  }
  return bytes;
}

std::vector<void*> events_of(std::span<const Segment> tensors) {
  std::vector<void*> events;
  for (const Segment& tensor : tensors) {
    void* const ready = tensor.memory.ready;
    if (ready != nullptr && std::ranges::find(events, ready) == events.end()) events.push_back(ready);
  }
  return events;
}

size_t DevicePacking::prepare(size_t bytes) {
  constexpr size_t kUnit = DeviceScratch::kUnit;
  const size_t spare = stream_.device()->free_bytes() / 2 / kUnit;  // the rest is for others, and for results
  const size_t wanted = bytes / kUnit + 1;                          // one more, for the gaps between tensors
  for (size_t units = std::min(wanted, spare); units > 0; units /= 2)
    if (reserve(units * kUnit).is_ok()) break;
  return buffer_.bytes();
}

Status DevicePacking::load(const Call& call, const Scale& before) {
  runs_.clear();
  places_.clear();
  table_.clear();
  offsets_.clear();
  for (void* const ready : events_of(call.segments))
    if (const Status status = stream_.wait(static_cast<cuda::CUevent>(ready)); !status.is_ok()) return status;
  const auto stays_in_place = [&](const Segment& one) {
    return call.segments.size() == 1 && !has_joined(one) && !is_foreign(one);
  };
  is_packed_ =
      call.spec.what == Collective::kAllreduce && !std::ranges::all_of(call.segments, stays_in_place);
  return is_packed_ ? load_packed(call, before) : load_apart(call, before);
}

Status DevicePacking::load_packed(const Call& call, const Scale& before) {
  const size_t element = size_of(call.spec.dtype);
  size_t bytes = 0;
  for (const Segment& segment : call.segments) {
    offsets_.push_back(bytes);
    bytes += place_bytes(static_cast<size_t>(segment.count) * element);
  }
  if (const Status status = reserve(bytes); !status.is_ok()) return status;
  // A tensor alone is not packed on every member, so it has no gap behind it.
  packed_count_ =
      call.segments.size() == 1 ? static_cast<size_t>(call.segments.front().count) : bytes / element;
  for (size_t i = 0; i < call.segments.size(); ++i) {
    const Segment& segment = call.segments[i];
    const auto count = static_cast<size_t>(segment.count);
    if (has_joined(segment)) continue;
    if (is_foreign(segment)) {
      const Status status = fetch(call, segment, buffer_.data() + offsets_[i], count);
      if (!status.is_ok()) return status;
    } else if (count > 0) {
      auto* const tensor = static_cast<std::byte*>(const_cast<void*>(segment.input));
      table_.push_back({.tensor = tensor, .offset = offsets_[i], .bytes = count * element});
    }
  }
  const DType dtype = call.spec.dtype;
  const bool is_scaled = scales_on_the_way(call, before);
  if (!table_.empty()) {
    const Status status = is_scaled ? kernels_.pack_scaled(stream_, dtype, table_, buffer_.data(), before)
                                    : kernels_.pack(stream_, table_, buffer_.data());
    if (!status.is_ok()) return status;
  }
  runs_.push_back({.input = buffer_.data(),
                   .output = buffer_.data(),
                   .count = static_cast<int64_t>(packed_count_),
                   .counts = {}});
  return scale_packed(call, is_scaled ? Scale{} : before);
}

// Whether the kernel that packs or unpacks scales as well, which saves reading and writing all bytes again.
bool DevicePacking::scales_on_the_way(const Call& call, const Scale& by) const {
  return !by.is_identity() && is_floating(call.spec.dtype) &&
         std::ranges::none_of(call.segments,
                              [&](const Segment& one) { return !has_joined(one) && is_foreign(one); });
}

// What a rank that has joined contributes is not scaled, as on the host.
Status DevicePacking::scale_packed(const Call& call, const Scale& before) {
  if (!std::ranges::all_of(call.segments, has_joined)) {
    const Status scaled = scale(call.spec.dtype, buffer_.data(), buffer_.data(), packed_count_, before);
    if (!scaled.is_ok()) return scaled;
  }
  for (size_t i = 0; i < call.segments.size(); ++i) {
    const Segment& segment = call.segments[i];
    if (!has_joined(segment)) continue;
    const Status filled =
        fetch(call, segment, buffer_.data() + offsets_[i], static_cast<size_t>(segment.count));
    if (!filled.is_ok()) return filled;
  }
  return Status::ok();
}

// Each tensor stays where it is, except that what is foreign, missing or scaled first lies in the buffer.
Status DevicePacking::load_apart(const Call& call, const Scale& before) {
  const size_t element = size_of(call.spec.dtype);
  const bool is_scaled = is_reduction(call.spec.what) && !before.is_identity();
  const bool scales_into_output = call.spec.what == Collective::kAllreduce;
  size_t bytes = 0;
  for (const Segment& segment : call.segments) {
    TensorProgress& place = places_.emplace_back();
    const Rank me = call.group->me, n = call.group->size();
    place.given = static_cast<size_t>(elements_given(call.spec.what, segment, me, n));
    place.taken = static_cast<size_t>(elements_taken(call.spec.what, segment, me, n));
    place.is_fetched = segment.input == nullptr || is_foreign(segment) || (is_scaled && !scales_into_output);
    place.is_delivered = segment.output == nullptr || is_foreign(segment);
    if (place.is_fetched) bytes += place_bytes(place.given * element);
    if (place.is_delivered) bytes += place_bytes(place.taken * element);
  }
  if (const Status status = reserve(bytes); !status.is_ok()) return status;
  std::byte* free = buffer_.data();
  for (size_t i = 0; i < call.segments.size(); ++i) {
    const Segment& segment = call.segments[i];
    TensorProgress& place = places_[i];
    std::byte* const fetched = free;
    if (place.is_fetched) free += place_bytes(place.given * element);
    std::byte* const delivered = free;
    if (place.is_delivered) free += place_bytes(place.taken * element);
    place.output = place.is_delivered ? delivered : static_cast<std::byte*>(segment.output);
    place.input = static_cast<const std::byte*>(segment.input);
    const bool is_copied = segment.input == nullptr || is_foreign(segment);
    if (is_copied) {
      const Status status = fetch(call, segment, fetched, place.given);
      if (!status.is_ok()) return status;
      place.input = fetched;
    }
    if (is_scaled && segment.input != nullptr) {
      std::byte* const to = scales_into_output ? place.output : fetched;
      const Status status = scale(call.spec.dtype, place.input, to, place.given, before);
      if (!status.is_ok()) return status;
      place.input = to;
    }
    runs_.push_back(
        {.input = place.input, .output = place.output, .count = segment.count, .counts = segment.counts});
  }
  return Status::ok();
}

// Copies an input that this device cannot read, or what a rank that has joined contributes.
Status DevicePacking::fetch(const Call& call, const Segment& segment, std::byte* to, size_t count) {
  if (count == 0) return Status::ok();
  if (segment.input != nullptr) return stream_.copy(to, segment.input, count * size_of(call.spec.dtype));
  return is_reduction(call.spec.what) ? fill_identity(call.spec, to, count) : Status::ok();
}

Status DevicePacking::fill_identity(const schedule::Spec& spec, std::byte* to, size_t count) {
  const size_t element = size_of(spec.dtype);
  const size_t at_once = kIdentityBytes / element;
  cuda::PinnedBuffer& source = identities_[{spec.op, spec.dtype}];
  if (source.data() == nullptr) {
    Result<cuda::PinnedBuffer> made = cuda::PinnedBuffer::allocate(stream_.device(), kIdentityBytes);
    if (!made.is_ok()) return made.status();
    source = std::move(made).value();
    kernels::fill_identity(spec.op, spec.dtype, source.data(), at_once);
  }
  for (size_t done = 0; done < count; done += at_once) {
    const size_t bytes = std::min(at_once, count - done) * element;
    const Status status = stream_.copy(to + done * element, source.data(), bytes);
    if (!status.is_ok()) return status;
  }
  return Status::ok();
}

Status DevicePacking::scale(DType dtype, const void* from, void* to, size_t count, const Scale& by) {
  if (count == 0 || by.is_identity()) return Status::ok();
  return kernels_.scale(stream_, dtype, from, to, count, by);
}

Status DevicePacking::store(const Call& call, const Scale& after) {
  const size_t element = size_of(call.spec.dtype);
  const Scale by = is_reduction(call.spec.what) ? after : Scale{};
  if (is_packed_) {
    const DType dtype = call.spec.dtype;
    const bool is_scaled = scales_on_the_way(call, by);
    const Scale apart = is_scaled ? Scale{} : by;
    const Status scaled = scale(dtype, buffer_.data(), buffer_.data(), packed_count_, apart);
    if (!scaled.is_ok()) return scaled;
    size_t next = 0;  // in the table, which lists inputs
    for (const Segment& segment : call.segments) {
      if (has_joined(segment) || is_foreign(segment) || segment.count == 0) continue;
      table_[next++].tensor = static_cast<std::byte*>(segment.output);
    }
    if (!table_.empty()) {
      const Status unpacked = is_scaled ? kernels_.unpack_scaled(stream_, dtype, table_, buffer_.data(), by)
                                        : kernels_.unpack(stream_, table_, buffer_.data());
      if (!unpacked.is_ok()) return unpacked;
    }
  }
  for (size_t i = 0; i < call.segments.size(); ++i) {
    const Segment& segment = call.segments[i];
    const std::byte* from = is_packed_ ? buffer_.data() + offsets_[i] : places_[i].output;
    const size_t count = is_packed_ ? static_cast<size_t>(segment.count) : places_[i].taken;
    if (!is_packed_) {
      const Status scaled = scale(call.spec.dtype, from, places_[i].output, count, by);
      if (!scaled.is_ok()) return scaled;
    }
    if (segment.output == nullptr || !is_foreign(segment) || count == 0) continue;
    const Status copied = stream_.copy(segment.output, from, count * element);
    if (!copied.is_ok()) return copied;
  }
  return Status::ok();
}

}  // namespace rueda::backend
