#include "rueda/backend/native/execution.h"

#include "rueda/base/check.h"

namespace rueda::backend {

using schedule::Action;
using schedule::Step;

void Execution::begin(const Plan& plan, const Buffers& buffers,
                      std::span<transport::Endpoint* const> endpoints, transport::Ticket first_ticket) {
  plan_ = &plan;
  buffers_ = buffers;
  endpoints_ = endpoints;
  first_ticket_ = first_ticket;
  status_ = Status::ok();
  states_.assign(plan.size(), State::kBlocked);
  blockers_ = plan.blockers;
  queue_heads_.assign(plan.queues.size(), 0);
  local_.clear();
  local_head_ = 0;
  remaining_ = plan.size();
  in_flight_ = 0;
  while (arrivals_.size() < static_cast<size_t>(plan.consumer_count)) arrivals_.emplace_back();
  // first.
  for (size_t i = 0; i < plan.size(); ++i)
    if (plan.blockers[i] == 0) make_ready(static_cast<int32_t>(i));
}

bool Execution::is_over() const {
  if (in_flight_ != 0) return false;
  return remaining_ == 0 || !status_.is_ok();
}

void Execution::make_ready(int32_t index) {
  states_[index] = State::kReady;
  if (plan_->queue_of[index] >= 0)
    advance(plan_->queue_of[index]);
  else
    local_.push_back(index);
}

// Lanes are FIFO: a message that is ready waits until those before it in its queue are posted.
void Execution::advance(int32_t queue) {
  const std::vector<int32_t>& steps = plan_->queues[queue].steps;
  size_t& head = queue_heads_[queue];
  while (head < steps.size() && states_[steps[head]] == State::kReady && status_.is_ok()) post(steps[head++]);
}

void Execution::post(int32_t index) {
  const Step& step = plan_->schedule.steps[index];
  transport::Endpoint& endpoint = *endpoints_[step.peer];
  const transport::Ticket ticket = first_ticket_ + static_cast<uint32_t>(index);
  states_[index] = State::kPosted;
  ++in_flight_;
  if (step.action == Action::kSend)
    return endpoint.send(ticket, {buffers_.read(step.from), buffers_.bytes_of(step.from)});
  const int32_t consumer = plan_->consumer_of[index];
  if (consumer < 0) return endpoint.recv(ticket, {buffers_.write(step.to), buffers_.bytes_of(step.to)});
  const size_t granule = size_of(type_of(*buffers_.spec, step.wire));
  arrivals_[consumer].reset(step, buffers_);
  endpoint.recv_into(ticket, static_cast<size_t>(step.to.count) * granule, granule, arrivals_[consumer]);
}

void Execution::on_completion(int32_t index, const Status& status) {
  RUEDA_CHECK(states_[index] == State::kPosted, "a ticket completed twice or was never given out");
  --in_flight_;
  if (!status.is_ok()) {
    if (status_.is_ok()) status_ = status;
    states_[index] = State::kDone;
    return;
  }
  if (const int32_t consumer = plan_->consumer_of[index]; consumer >= 0) {
    const Step& step = plan_->schedule.steps[index];
    const size_t expected = static_cast<size_t>(step.to.count) * size_of(type_of(*buffers_.spec, step.wire));
    RUEDA_CHECK(arrivals_[consumer].received() == expected,
                "a receive completed before all its bytes arrived");
  }
  finish_step(index);
}

void Execution::finish_step(int32_t index) {
  states_[index] = State::kDone;
  --remaining_;
  for (const int32_t next : plan_->dependents_of(index))
    if (--blockers_[next] == 0) make_ready(next);
}

bool Execution::run_ready(size_t budget) {
  size_t work = 0;
  bool moved = false;
  while (local_head_ < local_.size() && status_.is_ok() && work <= budget) {
    const int32_t index = local_[local_head_++];
    const Step& step = plan_->schedule.steps[index];
    work += work_of(step, buffers_);
    run_local(step, buffers_);
    finish_step(index);
    moved = true;
  }
  if (local_head_ == local_.size()) local_.clear(), local_head_ = 0;
  return moved;
}

}  // namespace rueda::backend
