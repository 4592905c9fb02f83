// Runs one call at a time on one data channel to each member of its group: packs the tensors, gets the
// schedule from the cache, executes it step by step, and unpacks the result. Engine thread only.
//
// A call waits here until the channels that its schedule needs are up. Until then it has posted nothing, and
// the next call of this channel waits behind it, so that all members keep one order.
//
// Failure: when a ticket fails, the call stays open until its other tickets are complete, because the
// transports hold the caller's memory until then. The call then ends with the first failure. Every later call
// on any channel fails as well, because the channels are out of step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/native/encoded_call.h"
#include "rueda/backend/native/execution.h"
#include "rueda/backend/native/mesh.h"
#include "rueda/backend/native/schedule_cache.h"
#include "rueda/backend/packing.h"
#include "rueda/backend/reused_buffer.h"
#include "rueda/schedule/start_barrier.h"
#include "rueda/transport/transport.h"

namespace rueda::backend {

struct NativeOptions {
  std::string algorithm;            // the name of a forced algorithm; empty: the cost model chooses
  bool is_bitwise = false;          // adds in rank order wherever the ranks are; the same on every rank
  int64_t chunk_bytes = 256 << 10;  // unit of pipelining; the same on every rank
  // How many calls run at once, each on data channels of its own; the same on every rank.
  size_t channels = 1;
  // A tensor up to this size is copied if its call may be cancelled, because a copy takes less time than
  // waiting until all members have started the call. The same on every rank.
  int64_t copied_bytes = schedule::kCopiedBytes;
  // The high byte of its tickets: several native backends may share the transports, each with its own
  // channels.
  uint8_t ticket_byte = 0x01;
  ScheduleMaker maker;  // for tests; empty: schedules come from the registry
};

// What the runners of one backend share.
struct RunnerContext {
  Mesh mesh;
  NativeOptions options;
  ScheduleCache schedules;
  Status broken;  // why nothing can run any more: the first failure of a channel, or the abort
};

class CallRunner {
 public:
  // [member] how many messages arrive for a call that is discarded; empty for a call that runs.
  using Arrivals = std::optional<std::span<const int32_t>>;

  CallRunner(RunnerContext& context, size_t channel) : context_(context), channels_(context.mesh, channel) {}

  // first_ticket: step i of the call has the ticket first_ticket + i.
  void begin(const Call& call, transport::Ticket first_ticket, Arrivals discarded);
  std::vector<int32_t> pause();
  void resume();
  void cancel(std::span<const int32_t> arrivals);
  // Appends the call if it has ended. Returns whether anything moved. Runs local steps of about `budget`
  // bytes at most.
  bool progress(size_t budget, std::vector<Done>& done);
  void on_completion(uint32_t step, const Status& status);
  // The transports must hold no buffer any more.
  void abort(const Status& why);

  [[nodiscard]] bool is_idle() const { return !is_running_ && !finished_; }
  [[nodiscard]] bool is_running() const { return is_running_; }
  // Whether progress() would do anything.
  [[nodiscard]] bool has_work() const {
    return finished_ || (is_running_ && !is_connecting_ && (execution_.has_ready() || execution_.is_over()));
  }
  [[nodiscard]] CallId call() const { return current_.id; }
  [[nodiscard]] transport::Ticket first_ticket() const { return first_ticket_; }

 private:
  void choose_wire();
  [[nodiscard]] bool is_encoded() const { return current_.spec.wire != Wire::kExact; }
  [[nodiscard]] bool needs_start_barrier() const;
  Status load(bool is_discarded);
  [[nodiscard]] bool needs_copy() const;
  Status prepare(const schedule::Spec& spec);
  Status connect();
  void pass_start_barrier();
  void end(const Status& status);

  RunnerContext& context_;
  CallChannels channels_;  // of current_
  bool is_running_ = false;
  bool is_connecting_ = false;        // waits for channels
  bool is_held_ = false;              // between pause() and resume()
  bool is_at_start_barrier_ = false;  // the start barrier runs, not yet the call itself
  bool is_cancelled_ = false;
  std::vector<int32_t> arrivals_;  // [member] of a call that is cancelled
  Call current_;
  transport::Ticket first_ticket_ = 0;
  Packing packing_;      // of current_
  EncodedCall encoded_;  // the same, if it has a wire type
  schedule::Spec spec_;  // what runs now: current_ or its start barrier
  Buffers buffers_;      // the same
  ReusedBuffer scratch_, wire_;
  Execution execution_;
  std::string_view how_ = "";
  // Of current_, or of the last call. Shared, because the cache may drop it meanwhile.
  std::shared_ptr<const PreparedSchedule> prepared_;
  std::optional<Done> finished_;  // to be handed out by progress()
};

}  // namespace rueda::backend
