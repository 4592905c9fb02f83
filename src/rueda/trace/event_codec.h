// Events as bytes, as a process keeps them until they are written and as other ranks forward them. Fixed
// layout, bounded fields.
#pragma once

#include <functional>
#include <span>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/base/trace_sink.h"

namespace rueda::trace {

inline constexpr size_t kMaxBatchBytes = 1u << 20;  // of one forwarded batch, and of one kept chunk
inline constexpr size_t kMaxTrackBytes = 4'096;     // longer names are cut
inline constexpr size_t kMaxEventBytes = 10'240;    // of one encoded event

void append_event(Bytes& out, const TraceEvent& event);
// `dropped` events are missing here, because there was no room for them.
void append_gap(Bytes& out, int64_t dropped);

struct BatchVisitor {
  std::function<void(const TraceEvent&)> event;  // the views in the event point into the batch
  std::function<void(int64_t dropped)> gap;
};
// Refuses a batch that is not exactly a sequence of well-formed events. The events before the fault have been
// visited by then; if that matters, check the batch with an empty visitor first.
Status visit_batch(std::span<const std::byte> batch, const BatchVisitor& visitor);

}  // namespace rueda::trace
