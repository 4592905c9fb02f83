// The dispatch order of one rank: which response starts next. Each backend gets its calls in the global order
// of the responses (the buckets of a learned plan in the order of the plan), so that overlapping process sets
// cannot deadlock. Calls of different backends overlap; calls of one backend overlap as far as it has room.
// This part holds the queue, what runs, pauses, and the places of calls in their generations. A backend is
// only a number here; whether it has room, and whether memory is in use, is what the caller tells. A pure
// state machine: events in, actions out; the caller (runtime/dispatcher.h) carries out each action before the
// next event. No I/O, no clock, no threads, no callbacks.
//
// Example: a call of backend 0 runs, which has room for no other; calls c (backend 0) and d (backend 1) wait.
// next() says Look at c, and the answer is that backend 0 is full. So looked() says Look at d. Backend 1 has
// room: looked() says Start d, which overtakes c. Then next() says Look at c again, and at last nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rueda/control/messages.h"

namespace rueda::control {

// The caller keeps what belongs to a response under this number. A number is free again when the response has
// left the order.
using OrderKey = uint32_t;

enum class BatchOrigin : uint8_t { kNegotiated, kPlanned, kDiscarded };

// A response in the order.
struct Ordered {
  // Among the calls of its generation, the same on all ranks; of a bucket of a plan its number in the plan.
  uint64_t place = 0;
  OrderKey key = 0;
  int32_t process_set = 0;
  int16_t backend = -1;  // that runs it; known once it has started
  uint16_t generation = 0;
  BatchOrigin origin = BatchOrigin::kNegotiated;
  bool is_call = false;       // otherwise a notice: a change of process sets, an error
  bool starts_alone = false;  // waits for everything before it, as notices and barriers do
  bool is_cancelled = false;
  bool needs_rows = false;  // a bucket that waits for the one before it, which tells its rows

  // A bucket of a plan that may still be cancelled; one that is being cancelled.
  [[nodiscard]] bool is_open_bucket() const { return origin == BatchOrigin::kPlanned && !is_cancelled; }
  [[nodiscard]] bool is_ending_bucket() const { return origin == BatchOrigin::kPlanned && is_cancelled; }
};

struct OrderAction {
  enum class What : uint8_t {
    kNothing,  // until something else happens
    kLook,     // tell with looked() whether this call may start
    kStart,    // it runs from now on; ended() follows
    kDiscard,  // the same, but it only receives what others have sent for it
    kCancel,   // it runs, and some rank never starts it; ended() follows
    kRefuse,   // no backend takes it: its operations fail. It has left the order
    kAnswer,   // the notice answers operations. It has left the order
    kForget,   // nothing is to be done here. It has left the order
  };
  What what = What::kNothing;
  OrderKey key = 0;
  bool is_first = false;  // kLook: nothing waits before it

  bool operator==(const OrderAction&) const = default;
};

// The caller's answer to kLook: whether a call could start now.
struct Readiness {
  static constexpr int16_t kNotHere = -1;    // this rank takes no part in it
  static constexpr int16_t kNoBackend = -2;  // no backend takes it
  // Whether an operation in flight uses its memory: none does, none of those before it any more, or one still
  // does. Of a call that is not first, the caller need not tell the last two apart.
  enum class Memory : uint8_t { kItsOwn, kFree, kInUse };
  int16_t backend = kNotHere;  // the number of the backend that runs it
  bool has_room = false;       // the backend, for the call at this place
  Memory memory = Memory::kItsOwn;
};

class Order {
 public:
  // backends: how many there are, at most 64.
  explicit Order(size_t backends);

  // ---- events ----
  // A response in the global order. Ranks outside a process set count its calls too.
  const Ordered& enqueue(const Response& response);
  // A bucket of a plan, with its number in the plan. If not all ranks start it, it is cancelled.
  const Ordered& enqueue_planned(const Bucket& bucket, int64_t number);
  // A bucket of a plan that other ranks have started and cancelled.
  const Ordered& enqueue_discarded(const Bucket& bucket, int64_t number);
  // What is next. kStart and what follows it: ask again. kLook: answer with looked(), which says what is
  // next.
  OrderAction next();
  OrderAction looked(const Readiness& seen);
  // A call that runs is over. True if its operations end with it; false if it was cancelled or discarded.
  bool ended(OrderKey key);
  // This rank says how far it is in the plan: until resume(), no bucket of the plan starts. Both return the
  // running calls that stop sending meanwhile.
  std::vector<OrderKey> pause();
  std::vector<OrderKey> resume();
  // This bucket of a plan is not started by all ranks. kCancel if it runs, kForget if it waited.
  OrderAction cancel(int64_t number);
  // Calls that are enqueued from now on belong to another generation. It changes at one place of the global
  // order.
  void set_generation(uint16_t generation);
  void clear();

  // ---- what is under way ----
  // Whether a bucket of a plan would start at once: kStart yes, kNothing no, kLook if the backend of the
  // running call `key` has room for it. An estimate: the bucket may run on another backend.
  [[nodiscard]] OrderAction opening() const;
  [[nodiscard]] std::span<const Ordered> running() const { return running_; }  // in start order
  [[nodiscard]] size_t backlog() const { return waiting().size() + running_.size(); }
  [[nodiscard]] bool is_idle() const { return backlog() == 0; }
  // The number of the first bucket of the plan that waits or runs; `none` if there is none.
  [[nodiscard]] int64_t first_open_bucket(int64_t none) const;
  // A call of process set 0, the world, is under way.
  [[nodiscard]] bool is_in_world() const;

 private:
  using What = OrderAction::What;
  [[nodiscard]] std::span<const Ordered> waiting() const { return std::span(queue_).subspan(head_); }
  const Ordered& push(Ordered one);
  OrderAction look_on();
  [[nodiscard]] bool is_held_up(const Ordered& one) const;
  [[nodiscard]] bool awaits_rows(const Ordered& one) const;
  // The response at this place of the queue leaves it.
  OrderAction take(size_t at, What what);
  // Of the plan that runs; of one before it all ranks have started those that are left.
  [[nodiscard]] bool is_open(const Ordered& one) const {
    return one.is_open_bucket() && one.generation == generation_;
  }
  [[nodiscard]] std::vector<OrderKey> open_buckets() const;

  size_t backends_;
  std::vector<Ordered> queue_;
  size_t head_ = 0;  // what is before it in queue_ has left
  std::vector<Ordered> running_;
  std::vector<OrderKey> free_;  // keys that were used
  OrderKey next_key_ = 0;
  // Between next() and its answer: the call that is looked at, and the backends that are full.
  size_t seen_ = 0;
  uint64_t full_ = 0;
  uint16_t generation_ = 0;
  uint64_t next_place_ = 0;  // of the calls of this generation
  bool is_paused_ = false;
};

}  // namespace rueda::control
