// Where modules report what happens, for the records of this rank. Its functions may be called from any
// thread and must not block; an implementation drops and counts records instead.
//
// There are two levels. Calls and spans are one record for each collective and for each wait, few and cheap,
// and always on. Details (the tensors of a call, its messages, who was ready when) are recorded while a
// timeline is on.
#pragma once

#include <cstdint>
#include <string_view>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"

namespace rueda {

// What is done with a tensor, as the timeline names it: a Collective, or an allreduce by Adasum.
using OperationCode = uint16_t;
inline constexpr OperationCode kAdasumCode = 0x100;
constexpr OperationCode operation_code(Collective what, ReduceOp op) {
  const bool is_adasum = what == Collective::kAllreduce && op == ReduceOp::kAdasum;
  return static_cast<OperationCode>(static_cast<OperationCode>(what) | (is_adasum ? kAdasumCode : 0));
}

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

// One tensor of a call, recorded after it while a timeline is on; or one that has failed before its call.
struct TensorTrace {
  std::string_view name{};   // borrowed for the duration of record(), as the others
  std::string_view dtype{};  // of its result: "float32"; empty: this rank takes none
  std::string_view shape{};  // "[2, 3]"
  OperationCode operation = 0;
  Nanos submitted = 0;  // by this rank; 0: it was not
  uint32_t call = 0;    // call_tag()
  Nanos failed = 0;     // when; 0: it did not fail
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
  // An instant on rank 0, while a timeline is on: member `peer` of a process set is ready for the tensor
  // `text`; value: its OperationCode.
  kReady,
  kCycle,  // an instant on rank 0, if cycles are marked: a round of negotiation or a bucket of a plan begins
};
constexpr int count_of(SpanKind /*kind*/) { return static_cast<int>(SpanKind::kCycle) + 1; }
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
  virtual void record(const CallTrace& /*call*/) {}
  virtual void record(const TraceSpan& /*span*/) {}
  virtual void record(const TensorTrace& /*tensor*/) {}
  // Callers skip building records that nobody wants.
  [[nodiscard]] virtual bool is_recording() const { return false; }   // calls and spans
  [[nodiscard]] virtual bool wants_details() const { return false; }  // a timeline is on
};

}  // namespace rueda
