// Events as bytes: what a process keeps until they are written, and what other ranks forward. Fixed layout,
// bounded fields.
#pragma once

#include <functional>
#include <span>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/base/trace_sink.h"

namespace rueda::trace {

inline constexpr size_t kMaxBatchBytes = 1u << 20;  // of one forwarded batch, and of one chunk that is kept
inline constexpr size_t kMaxTrackBytes = 4'096;     // longer names are cut
inline constexpr size_t kMaxEventBytes = 10'240;    // of one encoded event

void append_event(Bytes& out, const TraceEvent& event);
// `dropped` events are missing here: there was no room for them.
void append_gap(Bytes& out, int64_t dropped);

struct BatchVisitor {
  std::function<void(const TraceEvent&)> event;  // its views point into the batch
  std::function<void(int64_t dropped)> gap;
};
// Refuses a batch that is not exactly a sequence of well-formed events; then nothing was visited but what
// came before the fault, so check with an empty visitor first where that matters.
Status visit_batch(std::span<const std::byte> batch, const BatchVisitor& visitor);

}  // namespace rueda::trace
