// Runs one call at a time on one data channel to each member of its group: packs the tensors, gets the
// schedule from the cache, executes it step by step, and unpacks the result. Engine thread only.
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
#include "rueda/backend/native/execution.h"
#include "rueda/backend/native/schedule_cache.h"
#include "rueda/backend/native/scratch.h"
#include "rueda/backend/packing.h"
#include "rueda/schedule/topology.h"
#include "rueda/transport/transport.h"

namespace rueda::backend {

// The connections of the backend, and where the ranks are.
struct Mesh {
  // Returns a data channel to a world rank other than mine; never null while calls run.
  std::function<transport::Endpoint*(Rank world_rank, size_t channel)> endpoint;
  // Where the members of a group live. The same on every member.
  std::function<schedule::Topology(const Group&)> topology;
};

struct NativeOptions {
  std::string algorithm;            // the name of a forced algorithm; empty: the cost model chooses
  bool is_bitwise = false;          // adds in rank order wherever the ranks are; the same on every rank
  int64_t chunk_bytes = 256 << 10;  // unit of pipelining; the same on every rank
  // How many calls run at once, each on data channels of its own; the same on every rank.
  size_t channels = 1;
  // A tensor up to this size is copied if its call may be taken back, because a copy takes less time than
  // waiting until all members have started the call. The same on every rank.
  size_t copied_bytes = 256 << 10;
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

  CallRunner(RunnerContext& context, size_t channel) : context_(context), channel_(channel) {}

  // first_ticket: step i of the call has the ticket first_ticket + i.
  void begin(const Call& call, transport::Ticket first_ticket, Arrivals discarded);
  std::vector<int32_t> pause();
  void resume();
  void take_back(std::span<const int32_t> arrivals);
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
    return finished_ || (is_running_ && (execution_.has_ready() || execution_.is_over()));
  }
  [[nodiscard]] CallId call() const { return current_.id; }
  [[nodiscard]] transport::Ticket first_ticket() const { return first_ticket_; }

 private:
  [[nodiscard]] bool needs_start_barrier(const Call& call) const;
  Status load(const Call& call, bool is_discarded);
  Status prepare(const schedule::Spec& spec, Arrivals discarded);
  void pass_start_barrier();
  void end(const Status& status);

  RunnerContext& context_;
  size_t channel_;
  bool is_running_ = false;
  bool is_at_start_barrier_ = false;  // the start barrier runs, not yet the call itself
  bool is_taken_back_ = false;
  Call current_;
  transport::Ticket first_ticket_ = 0;
  Packing packing_;      // of current_
  schedule::Spec spec_;  // what runs now: current_ or its start barrier
  Scratch scratch_;
  Execution execution_;
  std::string_view how_ = "";
  // Of current_, or of the last call. Shared, because the cache may drop it meanwhile.
  std::shared_ptr<const PreparedSchedule> prepared_;
  std::vector<transport::Endpoint*> endpoints_;  // [rank in the group of current_]
  std::optional<Done> finished_;                 // to be handed out by progress()
};

}  // namespace rueda::backend
