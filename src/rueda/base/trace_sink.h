// Where modules report what happens: one interface for timelines and future analyses. emit() may be called
// from any thread and must not block; an implementation drops and counts events instead.
#pragma once

#include <cstdint>
#include <string_view>

#include "rueda/base/clock.h"

namespace rueda {

enum class TraceKind : uint8_t {
  kBegin,      // a phase or activity of a track begins
  kEnd,        // the innermost open one of that track ends
  kInstant,    // a mark on a track
  kCounter,    // value of a named counter
  kRankReady,  // rank `value` became ready for the tensor of this track (coordinator only)
  kCycle,      // the engine started a round
};

struct TraceEvent {
  TraceKind kind = TraceKind::kInstant;
  Nanos when = 0;                 // monotonic_now()
  std::string_view track{};       // tensor name; borrowed for the duration of emit()
  std::string_view name{};        // phase: "NEGOTIATE_ALLREDUCE", "ALLREDUCE", "QUEUE", …; borrowed, too
  std::string_view args_dtype{};  // kEnd of a whole operation: "float32", else empty
  std::string_view args_shape{};  // kEnd of a whole operation: "[2, 3]", else empty
  int64_t value = 0;              // kRankReady: the rank; kCounter: its value; kBegin: bytes, 0 = unknown
};

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void emit(const TraceEvent& event) = 0;
  [[nodiscard]] virtual bool is_on() const = 0;  // callers skip building events when false
};

}  // namespace rueda
