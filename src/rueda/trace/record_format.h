// The records of one rank, in memory and in its record file: a sequence of slots of 32 bytes, little-endian.
// A record takes one slot, a call three, an epoch three, and a name as many as its text needs.
//
//   file      kFile, then for each segment: kSegment, its names, an epoch, and records
//   segment   what was recorded in a row. Its names and its epoch hold for this segment only, so any
//             number of older segments may be missing.
//
// A name is defined before the first record of the segment that refers to it. A file that ends within a
// record is cut there. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "rueda/base/clock.h"
#include "rueda/base/trace_sink.h"
#include "rueda/base/types.h"

namespace rueda::trace {

enum class RecordSlotKind : uint8_t {
  // a: kFileMagic; b: kRecordVersion; c, extra: what is missing at the end of the file, as in kGap. detail
  // kStoppedFile: its rank has stopped recording, and all it recorded is here.
  kFile = 1,
  kSegment = 2,  // a: kSegmentMagic; b: number of the segment in its process
  kName = 3,     // name: its id; extra: bytes of text; the text begins at a
  kEpoch = 4,    // see EpochTrace; name: host
  kEpochMore = 5,
  // After its call. extra: OperationCode; name: tensor; a: submitted; b: id of "float32 [2, 3]"; c: its call.
  // detail kFailedTensor: there was no call, and c is when it failed.
  kTensor = 6,
  // detail: SpanKind; extra: peer + 1; name: text; a: begin; b: end; c: value. Of a message name is its
  // call, and c is bytes | number << kNumberShift.
  kSpan = 7,
  kCall = 8,  // see CallTrace; name: first tensor
  kCallMore = 9,
  kGap = 10,  // b: how many records are missing here, 0: it was not recording for a while; extra: why they
              // could not be written (errno), 0: too slow
};

// Every byte is written when a slot is used.
struct RecordSlot {
  RecordSlotKind kind = RecordSlotKind::kGap;
  uint8_t detail = 0;
  uint16_t extra = 0;
  uint32_t name = 0;
  int64_t a = 0, b = 0, c = 0;
};
static_assert(sizeof(RecordSlot) == 32);

inline constexpr int64_t kFileMagic = 0x3144524543455255;     // "URECERD1"
inline constexpr int64_t kSegmentMagic = 0x544E454D47455352;  // "RSEGMENT"
inline constexpr int64_t kRecordVersion = 2;
// With which each file begins.
constexpr RecordSlot first_slot() { return {RecordSlotKind::kFile, 0, 0, 0, kFileMagic, kRecordVersion, 0}; }
inline constexpr size_t kMaxNameBytes = 1'024;  // longer texts are cut
inline constexpr size_t kNameHeaderBytes = offsetof(RecordSlot, a);

inline constexpr uint8_t kStoppedFile = 1;
inline constexpr uint8_t kFailedTensor = 1;
inline constexpr int kNumberShift = 40;
inline constexpr int64_t kMaxMessageBytes = (int64_t{1} << kNumberShift) - 1;

constexpr size_t slots_of_name(size_t bytes) {
  return (kNameHeaderBytes + bytes + sizeof(RecordSlot) - 1) / sizeof(RecordSlot);
}

// Who recorded: written at the beginning of every segment.
struct EpochTrace {
  Epoch epoch = 0;
  Rank rank = 0, size = 1, local_rank = 0;
  int64_t pid = 0;
  int64_t job = 0;              // the same on all ranks of this epoch, and on no rank of another job
  Nanos began = 0;              // monotonic_now()
  int64_t began_micros = 0;     // the same moment in microseconds since 1970
  std::string_view host{};      // for people
  std::string_view host_key{};  // ranks with equal keys share a clock
  std::string_view command{};   // of the process, for people; empty in older files
};

inline constexpr size_t kSlotsOfCall = 3;
inline constexpr size_t kSlotsOfEpoch = 3;

// Ids of its texts.
struct CallNames {
  uint32_t name = 0, backend = 0, algorithm = 0;
};
inline void pack(const CallTrace& call, const CallNames& names, RecordSlot* out) {
  const auto flags = static_cast<uint16_t>((call.is_planned ? 1 : 0) | (call.is_launched ? 2 : 0) |
                                           (call.is_waited_for ? 4 : 0));
  out[0] = {RecordSlotKind::kCall,
            static_cast<uint8_t>(call.what),
            call.generation,
            names.name,
            static_cast<int64_t>(call.order),
            call.bytes,
            static_cast<int64_t>(static_cast<uint32_t>(call.tensors)) | int64_t{call.process_set} << 32};
  out[1] = {RecordSlotKind::kCallMore, 1, flags, names.backend, call.submitted, call.ordered, call.started};
  out[2] = {RecordSlotKind::kCallMore, 2,         0, names.algorithm, call.transfer_began,
            call.unpack_began,         call.ended};
}

inline CallTrace unpack_call(const RecordSlot* in) {
  CallTrace call;
  call.what = static_cast<Collective>(in[0].detail);
  call.is_planned = (in[1].extra & 1) != 0;
  call.is_launched = (in[1].extra & 2) != 0;
  call.is_waited_for = (in[1].extra & 4) != 0;
  call.generation = in[0].extra;
  call.order = static_cast<uint64_t>(in[0].a);
  call.bytes = in[0].b;
  call.tensors = static_cast<int32_t>(static_cast<uint32_t>(in[0].c & 0xFFFFFFFF));
  call.process_set = static_cast<int32_t>(in[0].c >> 32);
  call.submitted = in[1].a;
  call.ordered = in[1].b;
  call.started = in[1].c;
  call.transfer_began = in[2].a;
  call.unpack_began = in[2].b;
  call.ended = in[2].c;
  return call;
}

struct EpochNames {
  uint32_t host = 0, host_key = 0, command = 0;
};
inline void pack(const EpochTrace& epoch, const EpochNames& names, RecordSlot* out) {
  const int64_t who = static_cast<int64_t>(static_cast<uint32_t>(epoch.rank)) | int64_t{epoch.size} << 32;
  out[0] = {RecordSlotKind::kEpoch, 0, 0, names.host, static_cast<int64_t>(epoch.epoch), who, epoch.pid};
  out[1] = {RecordSlotKind::kEpochMore, 1, 0, names.host_key, epoch.began, epoch.began_micros, epoch.job};
  out[2] = {RecordSlotKind::kEpochMore, 2, 0, names.command, epoch.local_rank, 0, 0};
}

// text: the id of its text.
inline RecordSlot pack(const TraceSpan& span, uint32_t text) {
  const bool is_one = is_message(span.kind);
  const int64_t message =
      std::min(span.value, kMaxMessageBytes) | static_cast<int64_t>(span.number & 0x3FFFFF) << kNumberShift;
  return {RecordSlotKind::kSpan,
          static_cast<uint8_t>(span.kind),
          static_cast<uint16_t>(span.peer + 1),
          is_one ? span.call : text,
          span.begin,
          span.end,
          is_one ? message : span.value};
}

// Without its text.
inline TraceSpan unpack_span(const RecordSlot& in) {
  TraceSpan span;
  span.kind = static_cast<SpanKind>(in.detail);
  span.begin = in.a;
  span.end = in.b;
  span.value = in.c;
  span.peer = static_cast<Rank>(in.extra) - 1;
  if (!is_message(span.kind)) return span;
  span.call = in.name;
  span.value = in.c & kMaxMessageBytes;
  span.number = static_cast<uint32_t>(in.c >> kNumberShift);
  return span;
}

inline EpochTrace unpack_epoch(const RecordSlot* in) {
  EpochTrace epoch;
  epoch.epoch = static_cast<Epoch>(in[0].a);
  epoch.rank = static_cast<Rank>(static_cast<uint32_t>(in[0].b & 0xFFFFFFFF));
  epoch.size = static_cast<Rank>(in[0].b >> 32);
  epoch.pid = in[0].c;
  epoch.began = in[1].a;
  epoch.began_micros = in[1].b;
  epoch.job = in[1].c;
  epoch.local_rank = static_cast<Rank>(in[2].a);
  return epoch;
}

}  // namespace rueda::trace
