// Where modules report what happens: one interface for timelines and analyses. Its functions may be called
// from any thread and must not block; an implementation drops and counts events instead.
//
// There are two levels. Tensor events draw a bar for each phase of each tensor, and are asked for. Calls and
// spans are one record for each collective and for each wait, few and cheap, and always on.
#pragma once

#include <cstdint>
#include <string_view>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"

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

// One collective as this rank saw it, when it has ended here. The times are on monotonic_now(), in the order
// of the fields; 0 = it did not come to that. (generation, order) is the same on all members.
struct CallTrace {
  Collective what = Collective::kAllreduce;
  bool is_planned = false;     // of a learned plan, so it was not negotiated
  bool is_launched = false;    // device memory: `ended` is when it was launched
  bool is_waited_for = false;  // the thread that submitted it did nothing else until it ended
  uint16_t generation = 0;
  int32_t process_set = 0;
  uint64_t order = 0;
  std::string_view name{};       // of its first tensor; borrowed for the duration of record()
  std::string_view backend{};    // the same
  std::string_view algorithm{};  // of the backend: "two_level", "registered"; a constant, or empty
  int32_t tensors = 0;
  int64_t bytes = 0;         // of each member's input; where they differ, of the mean
  Nanos submitted = 0;       // the last of its tensors, by this rank; 0: this rank has joined
  Nanos ordered = 0;         // it entered the queue of this rank
  Nanos started = 0;         // a backend took it
  Nanos transfer_began = 0;  // packing was over; `started` if nothing was packed
  Nanos unpack_began = 0;
  Nanos ended = 0;
  // The longest time in it in which nothing moved, neither this call nor another one. In a learned plan this
  // rank waited then for one that had not come.
  Nanos still = 0;
};

enum class SpanKind : uint8_t {
  kStep,        // an instant: a step of training ended; value: which optimizer says so
  kInput,       // the program waited for its input
  kWait,        // a thread of the program waited for an operation
  kPlanBegins,  // an instant: a plan was learned
  kPlanEnds,    // an instant: a plan was left; text: why, as far as this rank knows
  kClock,    // begin: this rank's clock; end: how far the exchange took; value: add it to get rank 0's clock
  kFailure,  // an instant: the epoch broke; text: why
  kLink,     // begin: now; value: bytes sent to `peer` in this epoch; end: for how long the link was busy
  kStall,    // an instant: ranks keep others waiting; text: which, and for what
  kLinkPauses,  // after a kLink to the same peer; value: how often nothing was left to send to it
  kSent,        // a message of a call to `peer`, while a timeline is on; value: bytes
  kReceived,    // the same, from `peer`
  // After a kLink to the same peer; value: bytes that came from it while this rank waited for the rest of a
  // message; end: for how long it did.
  kLinkAwaited,
  kVerdict,  // an instant: this rank has told of a fault; text: what it said
};
constexpr int count_of(SpanKind /*kind*/) { return static_cast<int>(SpanKind::kVerdict) + 1; }
constexpr bool is_message(SpanKind kind) { return kind == SpanKind::kSent || kind == SpanKind::kReceived; }

// The same on all members of a call, and on no other call of its time.
constexpr uint32_t call_tag(uint16_t generation, uint64_t order) {
  return static_cast<uint32_t>(generation & 0xFF) << 24 | static_cast<uint32_t>(order & 0xFFFFFF);
}

struct TraceSpan {
  SpanKind kind = SpanKind::kWait;
  Nanos begin = 0, end = 0;  // monotonic_now(); equal for an instant
  int64_t value = 0;
  std::string_view text{};  // borrowed for the duration of record()
  Rank peer = -1;           // of links and messages
  uint32_t call = 0;        // of messages: call_tag()
  uint32_t number = 0;      // of messages: among those of its call from one rank to the other
};

inline TraceSpan instant_span(SpanKind kind, std::string_view text) {
  const Nanos now = monotonic_now();
  return {.kind = kind, .begin = now, .end = now, .text = text};
}

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void emit(const TraceEvent& event) = 0;
  [[nodiscard]] virtual bool is_on() const = 0;  // of tensor events; callers skip building them when false
  virtual void record(const CallTrace& /*call*/) {}
  virtual void record(const TraceSpan& /*span*/) {}
  [[nodiscard]] virtual bool is_recording() const { return false; }    // of calls and spans
  [[nodiscard]] virtual bool wants_messages() const { return false; }  // which are many
};

}  // namespace rueda
