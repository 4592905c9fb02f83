// Turns the coordinator's responses into backend calls, and their results into finished operations. Each
// backend gets its calls in the single global order of the responses: that keeps overlapping process sets
// from deadlocking. Calls of different backends overlap. Engine thread only.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/backend/table.h"
#include "rueda/base/trace_sink.h"
#include "rueda/control/messages.h"
#include "rueda/runtime/batch.h"
#include "rueda/runtime/counters.h"
#include "rueda/runtime/groups.h"
#include "rueda/runtime/operations.h"

namespace rueda::runtime {

class Dispatcher {
 public:
  Dispatcher(Rank me, Operations& operations, Groups& groups, backend::BackendTable& backends,
             TraceSink& trace, EngineCounters& counters);
  ~Dispatcher();

  void enqueue(control::Response response) { enqueue(share(std::move(response)), Way::kAgreed, {}); }
  // Not all ranks may have started it, and it may be cancelled; runs alone.
  void enqueue_planned(control::SharedResponse response) { enqueue(std::move(response), Way::kPlanned, {}); }
  // One that other ranks have started and cancelled. arrivals: messages that each rank has sent for it.
  void enqueue_drained(control::Response response, std::vector<int32_t> arrivals) {
    enqueue(share(std::move(response)), Way::kDrained, std::move(arrivals));
  }
  bool progress();  // true if anything moved
  [[nodiscard]] bool is_idle() const { return queue_.empty() && running_.empty(); }
  // Responses not finished yet: the coordinator holds back while there are several, so that tensors fuse.
  [[nodiscard]] size_t backlog() const { return queue_.size() + running_.size(); }
  // All that runs waits for what other processes write into memory, and something does.
  [[nodiscard]] bool waits_on_memory() const;
  // As backend::Backend: how far the planned batch is, for the ranks that may never start it.
  std::vector<int32_t> pause();
  void resume();
  // Takes back the one batch that was started, which not all ranks have started: its operations stay open.
  void take_back(std::span<const int32_t> arrivals);
  // Of responses enqueued from now on (backend::Call): its changes have a place in the global order.
  void set_generation(uint16_t generation) { generation_ = generation; }
  // Forgets everything; the caller closes the operations.
  void abort();
  // Not ok once something failed on this rank alone: the epoch must end, for the others wait for this rank.
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  enum class Way : uint8_t { kAgreed, kPlanned, kDrained };
  class Item;  // a response on its way: queued, then under way; tells the timeline what becomes of it
  static control::SharedResponse share(control::Response response) {
    return std::make_shared<const control::Response>(std::move(response));
  }
  void enqueue(control::SharedResponse response, Way way, std::vector<int32_t> arrivals);
  bool start_what_fits();
  bool start_one();
  void handle_notice(const control::Response& response);
  [[nodiscard]] bool is_mine(const control::Response& response) const;
  bool plan(Item& item);
  void start(std::unique_ptr<Item> owner);
  void finish(Item& item, const backend::Done& done);
  void fail_unsupported(const Batch& batch);
  void mark_queue_end(const Batch& batch);
  void mark_ends(const Batch& batch, bool is_ok);
  [[nodiscard]] bool is_traced(const control::Response& response) const;

  Rank me_;  // world rank
  Operations& operations_;
  Groups& groups_;
  backend::BackendTable& backends_;
  TraceSink& trace_;
  EngineCounters& counters_;
  std::deque<std::unique_ptr<Item>> queue_;
  std::vector<std::unique_ptr<Item>> running_;  // in start order
  std::vector<const backend::Backend*> full_;   // of start_one()
  std::vector<backend::Done> done_;
  backend::CallId next_call_ = 1;
  uint16_t generation_ = 0;
  Status failure_;
};

}  // namespace rueda::runtime
