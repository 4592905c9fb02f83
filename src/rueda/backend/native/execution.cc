#include "rueda/backend/native/execution.h"

#include <algorithm>

#include "rueda/base/check.h"
#include "rueda/base/clock.h"

namespace rueda::backend {

using schedule::Step;
using schedule::StepKind;

namespace {

// Throws the bytes of a cancelled call away.
class DiscardingConsumer final : public transport::Consumer {
  void consume(size_t, std::span<const std::byte>) override {}
};

size_t wire_bytes(const Step& receive, const Buffers& buffers) {
  if (receive.wire == schedule::WireType::kEncoded) return buffers.bytes_of(receive.to);
  return static_cast<size_t>(receive.to.count) * size_of(type_of(*buffers.spec, receive.wire));
}

}  // namespace

void Execution::begin(const PreparedSchedule& prepared, const Buffers& buffers,
                      std::span<transport::Endpoint* const> endpoints, transport::Ticket first_ticket) {
  reset(prepared, buffers, endpoints, first_ticket);
  if (observer_ != nullptr) {
    posted_.assign(prepared.size(), 0);
    numbers_.assign(prepared.size(), 0);
    last_ends_.assign(prepared.queues.size(), 0);
  }
  for (size_t i = 0; i < prepared.size(); ++i)
    if (prepared.blockers[i] == 0) make_ready(static_cast<int32_t>(i));
}

void Execution::reset(const PreparedSchedule& prepared, const Buffers& buffers,
                      std::span<transport::Endpoint* const> endpoints, transport::Ticket first_ticket) {
  prepared_ = &prepared;
  buffers_ = buffers;
  endpoints_ = endpoints;
  first_ticket_ = first_ticket;
  status_ = Status::ok();
  states_.assign(prepared.size(), StepState::kBlocked);
  blockers_ = prepared.blockers;
  queue_heads_.assign(prepared.queues.size(), 0);
  local_.clear();
  local_head_ = 0;
  remaining_ = prepared.size();
  in_flight_ = 0;
  is_paused_ = is_cancelled_ = false;
  while (consumers_.size() < static_cast<size_t>(prepared.consumer_count)) consumers_.emplace_back();
}

bool Execution::is_over() const {
  if (in_flight_ != 0) return false;
  return remaining_ == 0 || is_cancelled_ || !status_.is_ok();
}

void Execution::make_ready(int32_t index) {
  states_[index] = StepState::kReady;
  if (prepared_->queue_of[index] >= 0)
    advance(prepared_->queue_of[index]);
  else
    local_.push_back(index);
}

// Channels are FIFO, so a ready message waits until all messages before it in its queue are posted.
void Execution::advance(int32_t queue) {
  const std::vector<int32_t>& steps = prepared_->queues[queue].steps;
  size_t& head = queue_heads_[queue];
  if (is_paused_) return;
  while (head < steps.size() && states_[steps[head]] == StepState::kReady && status_.is_ok())
    post(steps[head++]);
}

void Execution::post(int32_t index) {
  const Step& step = prepared_->schedule.steps[index];
  transport::Endpoint& endpoint = *endpoints_[step.peer];
  const transport::Ticket ticket = first_ticket_ + static_cast<uint32_t>(index);
  states_[index] = StepState::kPosted;
  ++in_flight_;
  if (observer_ != nullptr) {
    posted_[index] = monotonic_now();
    numbers_[index] = static_cast<uint32_t>(queue_heads_[prepared_->queue_of[index]] - 1);
  }
  if (step.kind == StepKind::kSend)
    return endpoint.send(ticket, {buffers_.read(step.from), buffers_.bytes_of(step.from)});
  const int32_t consumer = prepared_->consumer_of[index];
  if (consumer < 0) return endpoint.recv(ticket, {buffers_.write(step.to), buffers_.bytes_of(step.to)});
  const size_t unit_bytes = size_of(type_of(*buffers_.spec, step.wire));
  consumers_[consumer].reset(step, buffers_);
  endpoint.recv_into(ticket, wire_bytes(step, buffers_), unit_bytes, consumers_[consumer]);
}

void Execution::on_completion(int32_t index, const Status& status) {
  RUEDA_CHECK(states_[index] == StepState::kPosted, "a ticket completed twice or was never given out");
  --in_flight_;
  if (!status.is_ok()) {
    if (status_.is_ok()) status_ = status;
    states_[index] = StepState::kDone;
    return;
  }
  if (is_cancelled_) return;
  if (const int32_t consumer = prepared_->consumer_of[index]; consumer >= 0) {
    const Step& step = prepared_->schedule.steps[index];
    RUEDA_CHECK(consumers_[consumer].received() == wire_bytes(step, buffers_),
                "a receive completed before all its bytes arrived");
  }
  if (observer_ != nullptr) tell(index);
  finish_step(index);
}

// Messages of one queue travel one after the other, so a message that was posted early began when the one
// before it was complete.
void Execution::tell(int32_t index) {
  const Step& step = prepared_->schedule.steps[index];
  const int32_t queue = prepared_->queue_of[index];
  const bool is_sent = step.kind == StepKind::kSend;
  const Nanos now = monotonic_now();
  const size_t bytes = is_sent                              ? buffers_.bytes_of(step.from)
                       : prepared_->consumer_of[index] >= 0 ? wire_bytes(step, buffers_)
                                                            : buffers_.bytes_of(step.to);
  observer_->add({.is_sent = is_sent,
                  .peer = step.peer,
                  .number = numbers_[index],
                  .bytes = static_cast<int64_t>(bytes),
                  .begin = std::max(posted_[index], last_ends_[queue]),
                  .end = now});
  last_ends_[queue] = now;
}

void Execution::finish_step(int32_t index) {
  states_[index] = StepState::kDone;
  --remaining_;
  for (const int32_t next : prepared_->dependents_of(index))
    if (--blockers_[next] == 0) make_ready(next);
}

// Withdraws posted receives, because members that have cancelled the call go on before this rank knows about
// it. What they send then must not meet a receive of this call.
void Execution::pause() {
  is_paused_ = true;
  for (size_t queue = 0; queue < prepared_->queues.size(); ++queue) {
    const PreparedSchedule::Queue& receives = prepared_->queues[queue];
    if (receives.sends) continue;
    size_t& head = queue_heads_[queue];
    const auto is_open = [&](size_t i) { return states_[receives.steps[i]] == StepState::kPosted; };
    size_t open = 0;
    while (open < head && is_open(head - open - 1)) ++open;
    if (open == 0) continue;
    for (size_t taken = endpoints_[receives.peer]->withdraw(open); taken > 0; --taken, --in_flight_)
      states_[receives.steps[--head]] = StepState::kReady;
  }
}

void Execution::resume() {
  is_paused_ = false;
  for (size_t queue = 0; queue < prepared_->queues.size(); ++queue) advance(static_cast<int32_t>(queue));
}

std::vector<int32_t> Execution::sent(size_t members) const {
  std::vector<int32_t> counts(members, 0);
  for (size_t queue = 0; queue < prepared_->queues.size(); ++queue)
    if (prepared_->queues[queue].sends)
      counts[prepared_->queues[queue].peer] = static_cast<int32_t>(queue_heads_[queue]);
  return counts;
}

void Execution::cancel(std::span<const int32_t> arrivals) {
  static DiscardingConsumer discarding;
  is_cancelled_ = true;
  is_paused_ = true;
  for (size_t queue = 0; queue < prepared_->queues.size(); ++queue) {
    const PreparedSchedule::Queue& receives = prepared_->queues[queue];
    if (receives.sends) continue;
    transport::Endpoint* endpoint = endpoints_[receives.peer];  // null: nothing is expected
    const auto expected = static_cast<size_t>(arrivals[receives.peer]);
    RUEDA_CHECK(expected <= receives.steps.size(), "a peer has sent more than the schedule has");
    size_t& posted = queue_heads_[queue];  // the receives that pause() left have arrived or begun to
    for (; posted < expected; ++posted) {
      const int32_t index = receives.steps[posted];
      states_[index] = StepState::kPosted;
      ++in_flight_;
      endpoint->recv_into(first_ticket_ + static_cast<uint32_t>(index),
                          wire_bytes(prepared_->schedule.steps[index], buffers_), 1, discarding);
    }
  }
}

void Execution::discard(const PreparedSchedule& prepared, const Buffers& buffers,
                        std::span<transport::Endpoint* const> endpoints, transport::Ticket first_ticket,
                        std::span<const int32_t> arrivals) {
  observer_ = nullptr;
  reset(prepared, buffers, endpoints, first_ticket);
  cancel(arrivals);
}

bool Execution::run_ready(size_t budget) {
  if (is_paused_) return false;
  size_t work = 0;
  bool moved = false;
  while (local_head_ < local_.size() && status_.is_ok() && work <= budget) {
    const int32_t index = local_[local_head_++];
    const Step& step = prepared_->schedule.steps[index];
    work += work_of(step, buffers_);
    run_local(step, buffers_);
    finish_step(index);
    moved = true;
  }
  if (local_head_ == local_.size()) local_.clear(), local_head_ = 0;
  return moved;
}

}  // namespace rueda::backend
