// One call in flight: which steps are ready, posted and complete. Reused from call to call, so that in a
// steady state nothing is allocated. Engine thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "rueda/backend/native/local_steps.h"
#include "rueda/backend/native/prepared_schedule.h"
#include "rueda/base/status.h"
#include "rueda/transport/transport.h"

namespace rueda::backend {

class Execution {
 public:
  // endpoints[rank in the group]; null where the schedule needs none. Everything is borrowed until the call
  // is over.
  void begin(const PreparedSchedule& prepared, const Buffers& buffers,
             std::span<transport::Endpoint* const> endpoints, transport::Ticket first_ticket);
  // Nothing more is sent, received or computed until resume(), but for a message that has begun to arrive.
  void pause();
  void resume();
  // Messages sent so far to each of `members` ranks of the group.
  [[nodiscard]] std::vector<int32_t> sent(size_t members) const;
  // The call, which is paused, ends without a result: once exactly arrivals[rank] messages of every member
  // are received, and what was sent has left. Only while some member has posted nothing.
  void cancel(std::span<const int32_t> arrivals);
  // begin(), but cancelled from the start: what others have sent is received and dropped.
  void discard(const PreparedSchedule& prepared, const Buffers& buffers,
               std::span<transport::Endpoint* const> endpoints, transport::Ticket first_ticket,
               std::span<const int32_t> arrivals);
  // The step `index` of this call is complete on the wire.
  void on_completion(int32_t index, const Status& status);
  // Runs ready local steps, at most about `budget` bytes of them. True if there was one.
  bool run_ready(size_t budget);

  // There are local steps to run.
  [[nodiscard]] bool has_ready() const {
    return !is_paused_ && status_.is_ok() && local_head_ < local_.size();
  }
  // Nothing is left to do, and no wire holds a buffer of the call any more.
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] size_t step_count() const { return prepared_ == nullptr ? 0 : prepared_->size(); }

 private:
  enum class State : uint8_t { kBlocked, kReady, kPosted, kDone };
  void reset(const PreparedSchedule& prepared, const Buffers& buffers,
             std::span<transport::Endpoint* const> endpoints, transport::Ticket first_ticket);
  void make_ready(int32_t index);
  void advance(int32_t queue);
  void post(int32_t index);
  void finish_step(int32_t index);

  const PreparedSchedule* prepared_ = nullptr;
  Buffers buffers_;
  std::span<transport::Endpoint* const> endpoints_;
  transport::Ticket first_ticket_ = 0;
  Status status_;                    // the first failure
  std::vector<State> states_;        // [steps]
  std::vector<int32_t> blockers_;    // [steps] that are not complete yet
  std::vector<size_t> queue_heads_;  // [queues] the next to be posted
  std::vector<int32_t> local_;       // ready local steps; [local_head_, end) in order of becoming ready
  size_t local_head_ = 0;
  std::deque<Arrival> arrivals_;  // [consumers] at least; addresses are stable
  size_t remaining_ = 0;          // steps that are not complete
  size_t in_flight_ = 0;          // messages that are posted and not complete
  bool is_paused_ = false;
  bool is_cancelled_ = false;
};

}  // namespace rueda::backend
