#include "rueda/trace/event_codec.h"

#include <algorithm>
#include <cstring>

namespace rueda::trace {
namespace {

constexpr uint8_t kGap = 255;  // stands where other records have their kind
constexpr int kKindCount = static_cast<int>(TraceKind::kCycle) + 1;
constexpr int64_t kMaxDropped = int64_t{1} << 40;  // so that sums of such numbers do not overflow
constexpr Nanos kMaxWhen = INT64_MAX / 4;          // offsets and differences cannot overflow
constexpr size_t kMaxArgBytes = 1'024;

template <class T>
void put(Bytes& out, T value) {
  const size_t at = out.size();
  out.resize(at + sizeof(T));
  std::memcpy(out.data() + at, &value, sizeof(T));
}

void put_text(Bytes& out, std::string_view text, size_t max) {
  const std::string_view cut = text.substr(0, max);
  put(out, static_cast<uint16_t>(cut.size()));
  const auto raw = std::as_bytes(std::span(cut.data(), cut.size()));
  out.insert(out.end(), raw.begin(), raw.end());
}

std::string_view get_text(ByteReader& reader, size_t max) {
  const auto size = reader.get<uint16_t>();
  if (size > max) return reader.fail(), std::string_view();
  const auto raw = reader.get_raw(size);
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

}  // namespace

void append_event(Bytes& out, const TraceEvent& event) {
  put(out, static_cast<uint8_t>(event.kind));
  put(out, std::clamp<Nanos>(event.when, 0, kMaxWhen));
  put(out, event.value);
  put_text(out, event.track, kMaxTrackBytes);
  put_text(out, event.name, kMaxTrackBytes);
  put_text(out, event.args_dtype, kMaxArgBytes);
  put_text(out, event.args_shape, kMaxArgBytes);
}

void append_gap(Bytes& out, int64_t dropped) {
  put(out, kGap);
  put(out, dropped);
}

Status visit_batch(std::span<const std::byte> batch, const BatchVisitor& visitor) {
  ByteReader reader(batch);
  while (reader.is_ok() && !reader.is_at_end()) {
    const auto kind = reader.get<uint8_t>();
    if (kind == kGap) {
      const auto dropped = reader.get<int64_t>();
      if (dropped < 0 || dropped > kMaxDropped) reader.fail();
      if (reader.is_ok() && visitor.gap) visitor.gap(dropped);
      continue;
    }
    TraceEvent event;
    event.when = reader.get<Nanos>();
    event.value = reader.get<int64_t>();
    event.track = get_text(reader, kMaxTrackBytes);
    event.name = get_text(reader, kMaxTrackBytes);
    event.args_dtype = get_text(reader, kMaxArgBytes);
    event.args_shape = get_text(reader, kMaxArgBytes);
    if (kind >= kKindCount || event.when < 0 || event.when > kMaxWhen) reader.fail();
    event.kind = static_cast<TraceKind>(kind);
    if (reader.is_ok() && visitor.event) visitor.event(event);
  }
  if (!reader.is_ok())
    return {Code::kInternal,
            "A batch of timeline events is malformed; its sender is faulty or of another release."};
  return Status::ok();
}

}  // namespace rueda::trace
