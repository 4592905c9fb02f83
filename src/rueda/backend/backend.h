// The interface of everything that runs a whole collective for one group: our own algorithms (native, local),
// NCCL and MPI. It knows no tensor names, frameworks or policy. Engine thread only.
//
// A call lists the tensors where the framework has them. A backend that needs them in one run of memory packs
// them itself (packing.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "rueda/backend/device_event.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/schedule/step.h"

namespace rueda::backend {

using CallId = uint64_t;

// What encoding has taken from one tensor so far on this rank and will add to its next values: to the sums of
// this host, and to the results that this rank encodes. Each as long as the tensor, filled up to whole blocks
// (kWireBlock), in the order of its elements. Null: nobody keeps it.
struct Residual {
  float* sent = nullptr;
  float* owned = nullptr;
};

// One tensor of a call. input and output may be the same memory. If both are null, this rank contributes
// identity elements and takes no result.
struct Segment {
  const void* input = nullptr;
  void* output = nullptr;
  int64_t count = 0;  // elements of the input
  // Allgather, reducescatter: elements of each member. Alltoall: [n * n], source-major. Otherwise empty.
  std::span<const int64_t> counts = {};
  // The tensors of a fused call may come from several streams, so each has an event of its own: its input may
  // be read, and its output written, when memory.ready has happened.
  Memory memory = {};
  // Calls with a wire type: a number that follows from the name, the same on every member, and the residual.
  // Backends read and write the residual while the call runs. If the call is cancelled or fails, it is again
  // what it was before anything else can use it.
  uint64_t name_hash = 0;
  Residual residual = {};
};

// What a backend does with the tensors of a call, for the timeline. begin() also ends the activity before it.
enum class Activity : uint8_t { kPack, kTransfer, kUnpack };
// One message of a call between two of its members. The number counts the messages of the call from the one
// to the other, so that both ends give it the same.
struct Message {
  bool is_sent = false;  // otherwise received
  Rank peer = -1;        // index in the group
  uint32_t number = 0;
  int64_t bytes = 0;
  // From when nothing was before it on its way to or from the peer, to when the transport was done with it.
  Nanos begin = 0, end = 0;
};
class ActivitySink {
 public:
  virtual ~ActivitySink() = default;
  virtual void begin(Activity activity) = 0;
  // Messages are told only if they are wanted: it takes two reads of the clock for each.
  [[nodiscard]] virtual bool wants_messages() const { return false; }
  virtual void add(const Message& /*message*/) {}
};

// group, segments and the sink are borrowed until the call is done. The memory of the segments is borrowed
// until the call has ended.
struct Call {
  CallId id = 0;
  // Its position in the global order of calls, the same on every member. The count
  // restarts with each generation.
  uint64_t order = 0;
  const Group* group = nullptr;  // I am a member
  // Of all segments together. A wire type is a wish: it counts between hosts, in a backend that knows it.
  schedule::Spec spec;
  std::span<const Segment> segments = {};
  double prescale = 1.0;  // of every input of a reduction
  // Some members may not have started the call, and it may be cancelled. The backend must therefore leave
  // its inputs (which may be its outputs) untouched until all members have started it.
  bool may_be_cancelled = false;
  // Distinguishes a call that was cancelled from the next call in its place.
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
  // The algorithm that ran, for descriptions: "two_level", "registered". A static string that ends
  // with a null.
  std::string_view how = "";
  std::shared_ptr<DeviceEvent> event = nullptr;  // null: host memory, or nothing was launched
  // The segment whose memory or ready event is at fault, if it is the fault of one.
  std::optional<size_t> segment = std::nullopt;
};

// How calls are cancelled that some member has not started and never will. Only backends that can do it
// implement this. Engine thread only.
class Cancellation {
 public:
  virtual ~Cancellation() = default;
  // Sends nothing more for this call until resume() or cancel(). progress() must not have returned the
  // call yet. Returns how many messages were sent for it so far to each member of its group; empty if nobody
  // needs to know.
  virtual std::vector<int32_t> pause(CallId) { return {}; }
  virtual void resume(CallId) {}
  // Cancels a running call that some member has not started and never will. The call is done as soon as
  // nothing holds its buffers any more. arrivals: how many messages each member has sent to me for it, as its
  // pause() returned; empty if nobody needs to know. The next calls of its group have another generation.
  virtual void cancel(CallId call, std::span<const int32_t> arrivals) = 0;
  // The counterpart of cancel() on a member that never started the call: receives in its place what the
  // others have sent, and throws it away.
  virtual void discard(const Call& call, std::span<const int32_t> arrivals) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // How it runs calls in device memory: a name of base/gpu_operations.h; empty if it takes none.
  [[nodiscard]] virtual std::string_view gpu_operations() const { return {}; }
  // Whether this backend can run such a call on tensors in such memory; memory.ready is null. The answer to
  // this and to the next two questions is the same on every member of the group.
  [[nodiscard]] virtual bool accepts(const Group& group, const schedule::Spec& spec,
                                     const Memory& memory) const = 0;
  // Whether the tensors of a fused call are copied to one place and back. If so, large tensors
  // should travel alone.
  [[nodiscard]] virtual bool copies_fused(const Group&, const schedule::Spec&) const { return false; }
  // Whether calls of the group with a wire type are encoded: between hosts. Otherwise they are exact.
  [[nodiscard]] virtual bool encodes(const Group&) const { return false; }
  // Null: no call may have may_be_cancelled set.
  [[nodiscard]] virtual Cancellation* cancellation() { return nullptr; }

  // How large buckets of a learned plan should be that hold such calls, if the backend has found that out;
  // otherwise 0. Rank 0 makes the plans and alone asks, so members may answer differently.
  [[nodiscard]] virtual int64_t bucket_bytes(const Group&, const schedule::Spec&) const { return 0; }
  // Sums have the same bits whatever segments are with them in a call.
  [[nodiscard]] virtual bool keeps_order() const { return true; }
  // Calls run by the algorithm and in the chunks that their spec asks for (Spec::tuning).
  [[nodiscard]] virtual bool obeys_tuning() const { return false; }

  // Whether the backend has room now for the call at this position of the global order.
  [[nodiscard]] virtual bool has_room(uint64_t order) const = 0;
  // Requires has_room(). Every member of a group starts the same calls of one backend in the same global
  // order (the coordinator's), so that calls of overlapping groups cannot deadlock.
  virtual void start(const Call& call) = 0;
  // Advances the running calls. Appends those that have ended, or that were launched on a device. Returns
  // whether anything moved.
  virtual bool progress(std::vector<Done>& done) = 0;
  // Whether nothing runs, not even on a device, and progress() has returned all calls.
  [[nodiscard]] virtual bool is_idle() const = 0;
  // Why a device has failed after a call was launched there; ok while none has. progress() finds it out.
  [[nodiscard]] virtual Status device_failure() const { return Status::ok(); }
  // Fails all open calls with `why`, launched calls as well: their events happen. After this, nothing touches
  // the buffers of the callers.
  virtual void abort(const Status& why) = 0;

  // Whether the running call waits for what other processes write into memory. Checking again is cheap then,
  // and progress() has checked for a while before it reports that nothing moved.
  [[nodiscard]] virtual bool waits_on_memory() const { return false; }
  // Whether progress() must be called again and again, because nobody rings when a call has got further: MPI
  // moves data only while it is called. The thread yields in between, but does not sleep.
  [[nodiscard]] virtual bool needs_polling() const { return false; }
  // To be called before this thread sleeps: asks the peers to ring when there is something to do. Returns
  // false if there is something to do already. In both cases wake_up() must follow.
  virtual bool prepare_sleep() { return true; }
  virtual void wake_up() {}
};

}  // namespace rueda::backend
