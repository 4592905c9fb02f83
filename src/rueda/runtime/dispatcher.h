// Turns the coordinator's responses into backend calls, one after the other, and their results into finished
// operations. The single global order of responses is what keeps overlapping process sets from deadlocking.
// Engine thread only.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/base/trace_sink.h"
#include "rueda/control/messages.h"
#include "rueda/runtime/counters.h"
#include "rueda/runtime/groups.h"
#include "rueda/runtime/operations.h"
#include "rueda/runtime/packing.h"

namespace rueda::runtime {

class Dispatcher {
 public:
  Dispatcher(Rank me, Operations& operations, Groups& groups, backend::Backend& backend, TraceSink& trace,
             EngineCounters& counters);

  void enqueue(control::Response response) { enqueue(std::move(response), Way::kAgreed, {}); }
  // Not all ranks may have started it, and it may be cancelled; runs alone.
  void enqueue_planned(control::Response response) { enqueue(std::move(response), Way::kPlanned, {}); }
  // One that other ranks have started and cancelled. arrivals: messages that each rank has sent for it.
  void enqueue_drained(control::Response response, std::vector<int32_t> arrivals) {
    enqueue(std::move(response), Way::kDrained, std::move(arrivals));
  }
  bool progress();  // true if anything moved
  [[nodiscard]] bool is_idle() const { return queue_.empty() && !running_; }
  // Responses not finished yet: the coordinator holds back while there are several, so that tensors fuse.
  [[nodiscard]] size_t backlog() const { return queue_.size() + (running_ ? 1 : 0); }
  // As backend::Backend: how far the running batch is, for the ranks that may never start it.
  std::vector<int32_t> pause() { return backend_.pause(); }
  void resume() { backend_.resume(); }
  // Takes back the one batch that was started, which not all ranks have started: its operations stay open.
  void cancel(std::span<const int32_t> arrivals);
  // Of responses enqueued from now on (backend::Call): its changes have a place in the global order.
  void set_generation(uint16_t generation) { generation_ = generation; }
  // Forgets everything; the caller closes the operations.
  void abort();
  // Not ok once something failed on this rank alone: the epoch must end, for the others wait for this rank.
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  enum class Way : uint8_t { kAgreed, kPlanned, kDrained };
  struct Queued {
    control::Response response;
    Way way = Way::kAgreed;
    uint16_t generation = 0;
    std::vector<int32_t> arrivals;
  };
  void enqueue(control::Response response, Way way, std::vector<int32_t> arrivals);
  bool start_next();
  void handle_notice(const control::Response& response);
  void run(Queued queued, std::shared_ptr<const Group> group);
  void drain(Queued queued, std::shared_ptr<const Group> group);
  void finish_running(const Status& status);
  void mark(const Batch& batch, TraceKind kind, std::string_view activity);
  void mark_ends(const Batch& batch, bool is_ok);
  [[nodiscard]] bool is_traced(const control::Response& response) const;

  Rank me_;  // world rank
  Operations& operations_;
  Groups& groups_;
  backend::Backend& backend_;
  TraceSink& trace_;
  EngineCounters& counters_;
  std::deque<Queued> queue_;
  std::optional<Batch> running_;
  bool is_cancelled_ = false;  // running_ has no result
  FusionBuffer fusion_;
  std::vector<backend::Done> done_;
  backend::CallId next_call_ = 1;
  uint16_t generation_ = 0;
  Status failure_;
};

}  // namespace rueda::runtime
