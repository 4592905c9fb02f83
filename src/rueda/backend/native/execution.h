// One call in flight: which of its steps are ready, posted and complete. The object is reused from call to
// call, so nothing is allocated in a steady state. Engine thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/native/local_steps.h"
#include "rueda/backend/native/prepared_schedule.h"
#include "rueda/base/status.h"
#include "rueda/transport/transport.h"

namespace rueda::backend {

class Execution {
 public:
  // endpoints[rank in the group]; null if the schedule needs none for that rank. Everything is borrowed until
  // the call is over.
  void begin(const PreparedSchedule& prepared, const Buffers& buffers,
             std::span<transport::Endpoint* const> endpoints, transport::Ticket first_ticket);
  // Who is told of the messages of the next call that begins; null: nobody.
  void observe(ActivitySink* observer) { observer_ = observer; }
  // Sends, receives and computes nothing more until resume(), except that a message which has begun to arrive
  // is received to its end.
  void pause();
  void resume();
  // How many messages were sent so far to each of the `members` ranks of the group.
  [[nodiscard]] std::vector<int32_t> sent(size_t members) const;
  // Ends the paused call without a result, once exactly arrivals[rank] messages of every member are received
  // and what was sent has left. Allowed only while some member has posted nothing.
  void cancel(std::span<const int32_t> arrivals);
  // Like begin(), but the call is cancelled from the start: what others have sent is received
  // and thrown away. Needs endpoints only for members of which messages arrive.
  void discard(const PreparedSchedule& prepared, const Buffers& buffers,
               std::span<transport::Endpoint* const> endpoints, transport::Ticket first_ticket,
               std::span<const int32_t> arrivals);
  // The transport has completed step `index` of this call.
  void on_completion(int32_t index, const Status& status);
  // Runs ready local steps of about `budget` bytes at most. Returns whether there was one.
  bool run_ready(size_t budget);

  // Whether local steps are ready to run.
  [[nodiscard]] bool has_ready() const {
    return !is_paused_ && status_.is_ok() && local_head_ < local_.size();
  }
  // Whether nothing is left to do and no transport holds a buffer of the call any more.
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] size_t step_count() const { return prepared_ == nullptr ? 0 : prepared_->size(); }

 private:
  enum class StepState : uint8_t { kBlocked, kReady, kPosted, kDone };
  void reset(const PreparedSchedule& prepared, const Buffers& buffers,
             std::span<transport::Endpoint* const> endpoints, transport::Ticket first_ticket);
  void make_ready(int32_t index);
  void advance(int32_t queue);
  void post(int32_t index);
  void finish_step(int32_t index);
  void tell(int32_t index);

  const PreparedSchedule* prepared_ = nullptr;
  Buffers buffers_;
  std::span<transport::Endpoint* const> endpoints_;
  transport::Ticket first_ticket_ = 0;
  Status status_;                    // the first failure
  std::vector<StepState> states_;    // [steps]
  std::vector<int32_t> blockers_;    // [steps] how many steps it still waits for
  std::vector<size_t> queue_heads_;  // [queues] the next step to be posted
  std::vector<int32_t> local_;  // local steps in the order in which they became ready; those from local_head_
                                // on still have to run
  size_t local_head_ = 0;
  std::deque<StepConsumer> consumers_;  // at least consumer_count; their addresses are stable
  ActivitySink* observer_ = nullptr;
  // While there is an observer: [steps] when messages were posted and which of their queue they are, and
  // [queues] when the last message of each was complete.
  std::vector<Nanos> posted_, last_ends_;
  std::vector<uint32_t> numbers_;
  size_t remaining_ = 0;  // steps that are not complete
  size_t in_flight_ = 0;  // messages that are posted and not complete
  bool is_paused_ = false;
  bool is_cancelled_ = false;
};

}  // namespace rueda::backend
