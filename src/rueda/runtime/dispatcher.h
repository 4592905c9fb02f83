// Turns the coordinator's responses into backend calls, and their results into finished operations. Each
// backend gets its calls in the global order of the responses, so that overlapping process sets cannot
// deadlock. Calls of different backends overlap; calls of one backend overlap as far as it has room.
// Engine thread only.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/backend/table.h"
#include "rueda/base/trace_sink.h"
#include "rueda/control/message_types.h"
#include "rueda/control/messages.h"
#include "rueda/runtime/batch.h"
#include "rueda/runtime/counters.h"
#include "rueda/runtime/groups.h"
#include "rueda/runtime/operations.h"

namespace rueda::runtime {

class DispatchItem;

class Dispatcher {
 public:
  Dispatcher(Rank me, Operations& operations, Groups& groups, backend::BackendTable& backends,
             TraceSink& trace, EngineCounters& counters, cuda::Devices* devices = nullptr);
  ~Dispatcher();

  void enqueue(control::Response response);
  // A bucket of a plan, with its number in the plan. If not all ranks start it, it is cancelled.
  void enqueue_planned(control::SharedBucket bucket, int64_t number);
  // A bucket that other ranks have started and cancelled. arrivals: messages that each rank has sent for it.
  void enqueue_discarded(control::Bucket bucket, int64_t number, std::vector<int32_t> arrivals);
  // Whether this bucket of a plan would start at once. This is an estimate: it asks the backend of the last
  // running call, and the bucket may run on another one. A bucket that cannot start yet waits in the queue.
  [[nodiscard]] bool has_room_for(int64_t number) const;
  bool progress();  // true if anything moved
  // Whether a call has moved since this was asked last.
  bool take_moved() { return std::exchange(has_moved_, false); }
  [[nodiscard]] bool is_idle() const { return queue_.empty() && running_.empty(); }
  // Something of process set 0, the world, is under way.
  [[nodiscard]] bool is_in_world() const;
  // Responses not finished yet: the coordinator holds back while there are several, so that tensors fuse.
  [[nodiscard]] size_t backlog() const { return queue_.size() + running_.size(); }
  // Something runs, and all that runs waits for what other processes write into memory.
  [[nodiscard]] bool waits_on_memory() const;
  // A call waits for a launched one that shares its memory, and nobody rings when that has ended.
  [[nodiscard]] bool waits_for_device() const { return waits_for_device_; }
  // As in backend::Backend. Returns how far the planned batches are, for ranks that may never start them.
  std::vector<control::BucketUnderWay> pause();
  void resume();
  // Cancels a bucket that not all ranks have started. Its operations stay open.
  void cancel(int64_t number, std::span<const int32_t> arrivals);
  // The call generation of the responses that are enqueued from now on. It changes at one place of
  // the global order.
  void set_generation(uint16_t generation) {
    generation_ = generation;
    next_order_ = 0;
  }
  // Forgets everything; the caller closes the operations.
  void abort();
  // Not ok once something has failed on this rank alone. The epoch must then end, because the others wait
  // for this rank.
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  using Item = DispatchItem;  // a response that is queued or under way
  static control::SharedBucket share(control::Bucket bucket) {
    return std::make_shared<const control::Bucket>(std::move(bucket));
  }
  void enqueue(std::unique_ptr<Item> item);
  bool start_what_fits();
  bool start_one();
  [[nodiscard]] bool is_held_up(const Item& item) const;
  [[nodiscard]] bool must_wait_for_memory(const Item& item, size_t place);
  void handle_notice(const control::Response& notice);
  [[nodiscard]] bool is_mine(const control::Bucket& bucket) const;
  bool make_batch_of(Item& item);
  void start(std::unique_ptr<Item> owner);
  void finish(Item& item, const backend::Done& done);
  void look_at_devices();
  void note_movement();
  void fail_unsupported(const Batch& batch);
  // call: the tag of a call that has ended; without one, its tensors have failed before it.
  void record_tensors(const Batch& batch, std::optional<uint32_t> call, bool is_ok);

  Rank me_;  // world rank
  Operations& operations_;
  Groups& groups_;
  backend::BackendTable& backends_;
  TraceSink& trace_;
  EngineCounters& counters_;
  cuda::Devices* devices_;  // null: the job has none
  std::deque<std::unique_ptr<Item>> queue_;
  std::vector<std::unique_ptr<Item>> running_;  // in start order
  std::vector<const backend::Backend*> full_;   // scratch of start_one()
  std::vector<backend::Done> done_;
  backend::CallId next_call_ = 1;
  uint16_t generation_ = 0;
  uint64_t next_order_ = 0;    // of the calls of this generation
  bool has_launched_ = false;  // something on a device; from then on backends are asked how devices are
  bool waits_for_device_ = false;
  bool is_paused_ = false;  // no bucket of a plan starts
  Status failure_;
  bool has_moved_ = false;  // a call, since take_moved()
};

}  // namespace rueda::runtime
