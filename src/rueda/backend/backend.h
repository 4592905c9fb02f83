// Runs a whole collective for one group: the seam for our own algorithms (native) and vendor libraries (nccl,
// mpi). Knows no tensor names, frameworks or policy. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/trace_sink.h"
#include "rueda/base/types.h"
#include "rueda/schedule/step.h"

namespace rueda::backend {

using CallId = uint64_t;

// One tensor of a fused allreduce. input and output may be the same. Both null: this rank takes part with
// identity elements and wants no result.
struct Piece {
  const void* input = nullptr;
  void* output = nullptr;
  int64_t count = 0;  // elements
};

// Buffers are host memory borrowed until the call is done. input and output may be the same.
struct Call {
  CallId id = 0;
  const Group* group = nullptr;  // outlives the call; I am a member
  schedule::Spec spec;
  const void* input = nullptr;
  void* output = nullptr;
  // Allreduce, where takes_pieces(): the tensors one after the other, instead of input and output, and a
  // factor for every input. Borrowed like them.
  std::span<const Piece> pieces = {};
  double prescale = 1.0;
  // Where can_cancel(): tells a call that was cancelled from the next one in its place.
  uint16_t generation = 0;
  // Nothing is written to the output before all members have started the call. (Else what is cancelled leaves
  // garbage there, and so in the input if that is the same and spares_input() does not hold.)
  bool is_gated = false;
};

struct Done {
  CallId id = 0;
  Status status;
};

// Of one backend. The runtime starts one call at a time; a thousand is a runaway caller.
inline constexpr size_t kMaxQueuedCalls = 1024;

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Can it run this call? The same answer on every member of the group.
  [[nodiscard]] virtual bool accepts(const Group& group, const schedule::Spec& spec) const = 0;
  // Does it run this call on scattered memory, and prescale, so that nobody has to pack?
  [[nodiscard]] virtual bool takes_pieces(const Group& group, const schedule::Spec& spec) const = 0;
  // Calls of one process run one after the other, in start order; every member of a group starts the same
  // calls in the same global order (the coordinator's), so calls of overlapping groups cannot deadlock.
  virtual void start(const Call& call) = 0;
  // Advances; appends calls that finished. True if anything moved.
  virtual bool progress(std::vector<Done>& done) = 0;
  [[nodiscard]] virtual bool is_idle() const = 0;
  // Is the running call waiting for what other processes write into memory? Looking again is cheap then, and
  // progress() has looked for a while before it says that nothing moved.
  [[nodiscard]] virtual bool waits_on_memory() const { return false; }
  // How the last call ran, for descriptions: "two_level", "registered". Static, ends with a null.
  [[nodiscard]] virtual std::string_view last_way() const = 0;
  // Before this thread sleeps: peers shall ring when there is something to do. False: there is already. After
  // sleeping, or a false: wake_up().
  virtual bool prepare_sleep() { return true; }
  virtual void wake_up() {}
  // May a member start such a call that others do not start, and take it back? The same on every member.
  [[nodiscard]] virtual bool can_cancel(const Group&, const schedule::Spec&) const { return false; }
  // Where can_cancel(), of an allreduce in place: is what it was given untouched until every member has
  // started it, without a gate? The same on every member.
  [[nodiscard]] virtual bool spares_input(const Group&, const schedule::Spec&) const { return false; }
  // Nothing more is sent for the running call until resume() or cancel(). Messages sent for it so far, to
  // each member of its group; empty where nobody needs to know.
  virtual std::vector<int32_t> pause() { return {}; }
  virtual void resume() {}
  // Takes back the one call that was started and that some member has not started, nor ever will. It is done
  // once nothing holds its buffers any more. arrivals: messages that each member has sent to me for it, as
  // its pause() said; empty where nobody needs to know. The next call of its group has another generation.
  virtual void cancel(std::span<const int32_t> /*arrivals*/) {}
  // Such a call on a member that never started it, in its place: takes what the others have sent.
  virtual void drain(const Call& call, std::vector<int32_t> arrivals) = 0;
  // Fails everything open with why; nothing touches the callers' buffers afterwards.
  virtual void abort(const Status& why) = 0;
};

}  // namespace rueda::backend
