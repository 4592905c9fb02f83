// Turns the coordinator's responses into backend calls, and their results into finished operations.
// control/order decides which call starts next; this part tells it what happens, and carries out its actions.
// Engine thread only.
#pragma once

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
#include "rueda/control/order.h"
#include "rueda/control/planner.h"
#include "rueda/runtime/batch.h"
#include "rueda/runtime/counters.h"
#include "rueda/runtime/groups.h"
#include "rueda/runtime/operations.h"
#include "rueda/runtime/ready_streams.h"
#include "rueda/runtime/residuals.h"

namespace rueda::runtime {

class DispatchItem;
struct RowCounts;

class Dispatcher {
 public:
  Dispatcher(Rank me, Operations& operations, Groups& groups, backend::BackendTable& backends,
             ReadyStreams& ready_streams, TraceSink& trace, EngineCounters& counters,
             cuda::Devices* devices = nullptr);
  ~Dispatcher();

  void enqueue(control::Response response);
  // As in control::Order. tensors: of this rank, one for each entry; they are moved from.
  void enqueue_planned(const control::StartBucket& started, std::span<std::optional<TensorRef>> tensors);
  // The plan has ended.
  void forget_planned();
  // arrivals: messages that each rank has sent for it.
  void enqueue_discarded(control::Bucket bucket, int64_t number, std::vector<int32_t> arrivals);
  // Whether this bucket of a plan would start at once; an estimate, see Order::opening(). A bucket that
  // cannot start yet waits in the queue.
  [[nodiscard]] bool has_room_for(int64_t number) const;
  bool progress();  // true if anything moved
  // Whether a call has moved since this was asked last.
  bool take_moved() { return std::exchange(has_moved_, false); }
  // What waits and what runs.
  [[nodiscard]] const control::Order& order() const { return order_; }
  [[nodiscard]] bool is_idle() const { return order_.is_idle(); }
  // Something runs, and all that runs waits for what other processes write into memory.
  [[nodiscard]] bool waits_on_memory() const;
  // A call waits for a launched one that shares its memory, and nobody rings when that has ended.
  [[nodiscard]] bool waits_for_device() const { return waits_for_device_; }
  // As in backend::Backend. Returns how far the planned batches are, for ranks that may never start them.
  std::vector<control::BucketUnderWay> pause();
  void resume();
  // Cancels a bucket that not all ranks have started. Its operations stay open.
  void cancel(int64_t number, std::span<const int32_t> arrivals);
  void set_generation(uint16_t generation) { order_.set_generation(generation); }
  // Forgets everything; the caller closes the operations.
  void abort();
  // Not ok once something has failed on this rank alone. The epoch must then end, because the others wait
  // for this rank.
  [[nodiscard]] const Status& failure() const { return failure_; }
  [[nodiscard]] ResidualStore& residuals() { return residuals_; }

 private:
  using Item = DispatchItem;  // what this rank keeps of a response in the order
  void keep(const control::Ordered& ordered, std::unique_ptr<Item> item);
  void keep_for_next_pass(std::unique_ptr<Item> item);
  std::shared_ptr<RowCounts> enqueue_row_counts(const control::StartBucket& started,
                                                std::span<const std::optional<TensorRef>> tensors);
  bool start_what_fits();
  // Null once something has failed.
  std::optional<control::Readiness> look(Item& item, bool is_first);
  [[nodiscard]] control::Readiness::Memory look_at_memory(const Batch& batch, bool is_first);
  void carry_out(const control::OrderAction& action);
  void answer(const control::Response& notice);
  Status prepare(Item& item);
  bool make_batch_of(Item& item, std::shared_ptr<const Group> group);
  void start(const control::OrderAction& action);
  void finish(const backend::Done& done);
  void look_at_devices();
  void note_movement();
  void fail_unsupported(const Batch& batch);

  Rank me_;  // world rank
  Operations& operations_;
  Groups& groups_;
  backend::BackendTable& backends_;
  ReadyStreams& ready_streams_;
  TraceSink& trace_;
  EngineCounters& counters_;
  cuda::Devices* devices_;  // null: the job has none
  ResidualStore residuals_;
  control::Order order_;
  std::vector<std::unique_ptr<Item>> items_;  // [key]
  // [position of the first tensor in the plan] buckets that have ended: their next run uses their memory.
  std::vector<std::unique_ptr<Item>> ended_;
  std::vector<backend::Done> done_;
  backend::CallId next_call_ = 1;
  bool has_launched_ = false;  // something on a device; from then on backends are asked how devices are
  bool waits_for_device_ = false;
  Status failure_;
  bool has_moved_ = false;  // a call, since take_moved()
};

}  // namespace rueda::runtime
