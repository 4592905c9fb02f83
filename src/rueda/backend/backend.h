// Runs a whole collective for one group: the interface for our own algorithms (native, local) and vendor
// libraries. Knows no tensor names, frameworks or policy. Engine thread only.
//
// A call is always a list of tensors where the framework has them. A backend that wants them in one run of
// memory packs them itself (packing.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "rueda/backend/device_event.h"
#include "rueda/base/check.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/schedule/step.h"

namespace rueda::backend {

using CallId = uint64_t;

// One tensor of a call. input and output may be the same. Both null: this rank takes part with identity
// elements and wants no result.
struct Segment {
  const void* input = nullptr;
  void* output = nullptr;
  int64_t count = 0;  // elements of the input
  // Allgather, reducescatter: elements of each member. Alltoall: [n * n], source-major. Else empty.
  std::span<const int64_t> counts = {};
};

// What a backend does with the tensors of a call, for the timeline. The activity before ends.
enum class Activity : uint8_t { kPack, kTransfer, kUnpack };
class ActivitySink {
 public:
  virtual ~ActivitySink() = default;
  virtual void begin(Activity activity) = 0;
};

// group, segments and the sink are borrowed until the call is done, the memory of the segments until it has
// ended.
struct Call {
  CallId id = 0;
  // Its position in the global order of calls, the same on every member. Counted anew with each generation.
  uint64_t order = 0;
  const Group* group = nullptr;  // I am a member
  schedule::Spec spec;           // of all segments together
  std::span<const Segment> segments = {};
  double prescale = 1.0;  // of every input of a reduction
  Memory memory = {};
  // Not all members may have started it, and it may be taken back: its inputs, which may be its outputs, are
  // untouched until all members have.
  bool may_be_taken_back = false;
  // Tells a call that was taken back from the next one in its place.
  uint16_t generation = 0;
  ActivitySink* activities = nullptr;  // may be null

  void note(Activity activity) const {
    if (activities != nullptr) activities->begin(activity);
  }
};

// In host memory the call has ended. In device memory it was launched: it is enqueued on a stream of the
// backend, and ends when its event happens. A failure after the launch is the event's.
struct Done {
  CallId id = 0;
  Status status;
  std::string_view how =
      "";  // it ran, for descriptions: "two_level", "registered". Static, ends with a null.
  std::shared_ptr<DeviceEvent> event = nullptr;  // null: host memory, or nothing was launched
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Can it run this call? The same answer on every member of the group, as of all questions that follow.
  [[nodiscard]] virtual bool accepts(const Group& group, const schedule::Spec& spec,
                                     const Memory& memory) const = 0;
  // Are the tensors of a fused call copied to one place and back? Then large ones had better go alone.
  [[nodiscard]] virtual bool copies_fused(const Group&, const schedule::Spec&) const { return false; }
  // May a call have may_be_taken_back?
  [[nodiscard]] virtual bool can_take_back(const Group&, const schedule::Spec&) const { return false; }

  // Can it start the call at this position of the global order now?
  [[nodiscard]] virtual bool has_room(uint64_t order) const = 0;
  // Only where there is room. Every member of a group starts the same calls of one backend in the same global
  // order (the coordinator's), so that calls of overlapping groups cannot deadlock.
  virtual void start(const Call& call) = 0;
  // Advances; appends calls that finished, or were launched on a device. True if anything moved.
  virtual bool progress(std::vector<Done>& done) = 0;
  // Nothing runs, not even on a device, and progress() has handed everything out.
  [[nodiscard]] virtual bool is_idle() const = 0;
  // Fails everything open with why, launched calls as well: their events happen. Nothing touches the callers'
  // buffers afterwards.
  virtual void abort(const Status& why) = 0;

  // Is the running call waiting for what other processes write into memory? Looking again is cheap then, and
  // progress() has looked for a while before it says that nothing moved.
  [[nodiscard]] virtual bool waits_on_memory() const { return false; }
  // Before this thread sleeps: peers shall ring when there is something to do. False: there is already. After
  // sleeping, or a false: wake_up().
  virtual bool prepare_sleep() { return true; }
  virtual void wake_up() {}

  // ---- where can_take_back() ----
  // Nothing more is sent for this call, which progress() has not handed out, until resume() or take_back().
  // Messages sent for it so far, to each member of its group; empty where nobody needs to know.
  virtual std::vector<int32_t> pause(CallId) { return {}; }
  virtual void resume(CallId) {}
  // Takes back a call that runs and that some member has not started, nor ever will. It is done once nothing
  // holds its buffers any more. arrivals: messages that each member has sent to me for it, as its pause()
  // said; empty where nobody needs to know. The next calls of its group have another generation.
  virtual void take_back(CallId, std::span<const int32_t> /*arrivals*/) {
    RUEDA_CHECK(false, "this backend takes no call back");
  }
  // Such a call on a member that never started it, in its place: takes what the others have sent.
  virtual void discard(const Call& /*call*/, std::span<const int32_t> /*arrivals*/) {
    RUEDA_CHECK(false, "this backend takes no call back");
  }
};

}  // namespace rueda::backend
