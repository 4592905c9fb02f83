#include <algorithm>

#include "rueda/schedule/verify_parts.h"

namespace rueda::schedule {

void SymbolicMemory::write(const Slice& to, const std::vector<Extent>& extents) {
  auto& buffer = buffers_[index(to.buffer)];
  for (const Extent& extent : extents) {
    const int64_t begin = to.begin + extent.offset;
    buffer.assign(begin, begin + extent.count, {.expr = extent.cell.expr, .shift = extent.element - begin});
  }
}

std::vector<Extent> SymbolicMemory::read(const Slice& from) {
  std::vector<Extent> extents;
  buffers_[index(from.buffer)].visit(from.begin, from.begin + from.count,
                                     [&](int64_t begin, int64_t end, const Cell& cell) {
                                       extents.push_back({.offset = begin - from.begin,
                                                          .count = end - begin,
                                                          .cell = cell,
                                                          .element = begin + cell.shift});
                                     });
  return extents;
}

SymbolicExecution::SymbolicExecution(const Spec& spec, std::span<const Schedule> schedules, bool is_aliased,
                                     Expressions& expressions)
    : spec_(spec), schedules_(schedules), expressions_(expressions), memories_(schedules.size()) {
  const auto n = static_cast<Rank>(schedules.size());
  states_.resize(n);
  dependents_.resize(n);
  channels_.resize(static_cast<size_t>(n) * n);
  for (Rank rank = 0; rank < n; ++rank) {
    if (is_aliased) memories_[rank].set_aliased();
    const int64_t count = shape_of(spec, n, rank).input;
    const Extent all{.offset = 0, .count = count, .cell = {expressions.leaf(rank), 0}, .element = 0};
    memories_[rank].write({Buffer::kInput, 0, count}, {all});
    index_rank(rank);
  }
}

void SymbolicExecution::index_rank(Rank rank) {
  const auto n = static_cast<int64_t>(schedules_.size());
  const auto& steps = schedules_[rank].steps;
  states_[rank].resize(steps.size());
  dependents_[rank].resize(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    StepState& state = states_[rank][i];
    state.waits_for = static_cast<int32_t>(steps[i].after.size());
    for (int32_t earlier : steps[i].after) dependents_[rank][earlier].push_back(i);
    const bool is_send = steps[i].kind == StepKind::kSend;
    if (!is_send && steps[i].kind != StepKind::kRecv && steps[i].kind != StepKind::kRecvReduce) continue;
    state.channel = is_send ? rank * n + steps[i].peer : steps[i].peer * n + rank;
    auto& messages = is_send ? channels_[state.channel].sends : channels_[state.channel].recvs;
    state.place = static_cast<int64_t>(messages.size());
    messages.push_back(i);
  }
}

Status SymbolicExecution::check_channels() const {
  const auto n = static_cast<Rank>(schedules_.size());
  for (Rank from = 0; from < n; ++from) {
    for (Rank to = 0; to < n; ++to) {
      const Channel& channel = channels_[static_cast<size_t>(from) * n + to];
      if (channel.sends.size() != channel.recvs.size())
        return {Code::kInternal, std::string(schedules_[from].name) + ": rank " + std::to_string(from) +
                                     " sends " + std::to_string(channel.sends.size()) + " messages to rank " +
                                     std::to_string(to) + ", which receives " +
                                     std::to_string(channel.recvs.size())};
      for (size_t i = 0; i < channel.sends.size(); ++i) {
        const Step& send = schedules_[from].steps[channel.sends[i]];
        const Step& recv = schedules_[to].steps[channel.recvs[i]];
        if (send.from.count != recv.to.count || send.wire != recv.wire)
          return step_fault(to, channel.recvs[i], schedules_[to],
                            "receives a size or type that differs from what step " +
                                std::to_string(channel.sends[i]) + " of rank " + std::to_string(from) +
                                " sends");
      }
    }
  }
  return Status::ok();
}

Status SymbolicExecution::run() {
  if (Status status = check_channels(); !status.is_ok()) return status;
  for (Rank rank = 0; rank < static_cast<Rank>(schedules_.size()); ++rank)
    for (size_t i = 0; i < states_[rank].size(); ++i)
      if (states_[rank][i].waits_for == 0) ready_.push_back({rank, i});
  while (!ready_.empty()) {
    const Event event = ready_.back();
    ready_.pop_back();
    if (Status status = advance(event); !status.is_ok()) return status;
  }
  return stuck();
}

Status SymbolicExecution::advance(Event event) {
  StepState& state = states_[event.rank][event.step];
  if (state.is_started || state.waits_for > 0) return Status::ok();
  if (state.channel < 0) {
    state.is_started = true;
    if (Status status = apply(event, nullptr); !status.is_ok()) return status;
    complete(event, state.round);
    return Status::ok();
  }
  Channel& channel = channels_[state.channel];
  const bool is_send = step(event).kind == StepKind::kSend;
  const auto& messages = is_send ? channel.sends : channel.recvs;
  size_t& posted = is_send ? channel.sends_posted : channel.recvs_posted;
  if (static_cast<size_t>(state.place) != posted) return Status::ok();  // tried again when its turn comes
  state.is_started = true;
  ++posted;
  if (posted < messages.size()) ready_.push_back({event.rank, messages[posted]});
  if (std::min(channel.sends_posted, channel.recvs_posted) > static_cast<size_t>(state.place))
    return meet(state.channel, static_cast<size_t>(state.place));
  return Status::ok();
}

Status SymbolicExecution::meet(int64_t index, size_t place) {
  const auto n = static_cast<int64_t>(schedules_.size());
  const Event send{static_cast<Rank>(index / n), channels_[index].sends[place]};
  const Event recv{static_cast<Rank>(index % n), channels_[index].recvs[place]};
  const auto extents = memories_[send.rank].read(step(send).from);
  if (Status status = apply(recv, &extents); !status.is_ok()) return status;
  // A chain grows when a message is sent after another has arrived. Arrivals that wait for one another
  // overlap in flight.
  const int64_t round =
      std::max(states_[send.rank][send.step].round + 1, states_[recv.rank][recv.step].round);
  complete(send, round);
  complete(recv, round);
  return Status::ok();
}

void SymbolicExecution::complete(Event event, int64_t round) {
  StepState& state = states_[event.rank][event.step];
  state.is_complete = true;
  state.round = round;
  rounds_ = std::max(rounds_, round);
  for (size_t dependent : dependents_[event.rank][event.step]) {
    StepState& next = states_[event.rank][dependent];
    next.round = std::max(next.round, round);
    if (--next.waits_for == 0) ready_.push_back({event.rank, dependent});
  }
}

Status SymbolicExecution::apply(Event event, const std::vector<Extent>* received) {
  const Step& now = step(event);
  SymbolicMemory& memory = memories_[event.rank];
  const auto fault = [&](const std::string& why) {
    return step_fault(event.rank, event.step, schedules_[event.rank], why);
  };
  const auto first = received != nullptr && now.kind == StepKind::kRecv ? *received : memory.read(now.from);
  const auto second = received != nullptr ? *received : memory.read(now.from2);
  for (const auto* extents : {&first, &second})
    for (const Extent& extent : *extents)
      if (extent.cell.expr == kUnwritten) return fault("reads or receives data that nobody has written");
  switch (now.kind) {
    case StepKind::kRecv:
    case StepKind::kCopy:
      memory.write(now.to, first);
      return Status::ok();
    case StepKind::kRecvReduce:
    case StepKind::kReduce:
    case StepKind::kAdasum:
      return combine(event, first, second);
    case StepKind::kEncode:
      return encode(event, first);
    case StepKind::kFinish: {
      auto finished = first;
      for (Extent& extent : finished) {
        if (expressions_.is_finished(extent.cell.expr)) return fault("finishes twice");
        extent.cell.expr = expressions_.finish(extent.cell.expr);
      }
      memory.write(now.to, finished);
      return Status::ok();
    }
    case StepKind::kSend:
      break;
  }
  return fault("is a send and cannot be applied");
}

// The errors of earlier calls are kept by the place in the call, and each place is encoded once.
Status SymbolicExecution::encode(Event event, std::vector<Extent> extents) {
  const Step& now = step(event);
  SymbolicMemory& memory = memories_[event.rank];
  for (const Extent& there : memory.read(now.to))
    if (there.cell.expr != kUnwritten)
      return step_fault(event.rank, event.step, schedules_[event.rank], "encodes a place twice");
  for (Extent& extent : extents) {
    if (extent.element != (now.to.begin + extent.offset) % spec_.count)
      return step_fault(event.rank, event.step, schedules_[event.rank], "encodes into the place of another");
    if (expressions_.is_finished(extent.cell.expr))
      return step_fault(event.rank, event.step, schedules_[event.rank], "encodes a finished value");
    extent.cell.expr = expressions_.encoded(extent.cell.expr, event.rank);
  }
  memory.write(now.to, extents);
  return Status::ok();
}

Status SymbolicExecution::combine(Event event, const std::vector<Extent>& a, const std::vector<Extent>& b) {
  const Step& now = step(event);
  const auto fault = [&](const std::string& why) {
    return step_fault(event.rank, event.step, schedules_[event.rank], why);
  };
  if ((now.kind == StepKind::kAdasum) != (spec_.op == ReduceOp::kAdasum))
    return fault("applies the wrong operation");
  std::vector<Extent> result;
  size_t i = 0;
  size_t j = 0;
  for (int64_t at = 0; at < now.to.count;) {  // runs of a and b need not end at the same places
    while (a[i].offset + a[i].count <= at) ++i;
    while (b[j].offset + b[j].count <= at) ++j;
    const int64_t end = std::min(a[i].offset + a[i].count, b[j].offset + b[j].count);
    const int64_t element = a[i].element + (at - a[i].offset);
    if (element != b[j].element + (at - b[j].offset)) return fault("combines different elements");
    const Expr x = a[i].cell.expr;
    const Expr y = b[j].cell.expr;
    if (expressions_.is_finished(x) || expressions_.is_finished(y)) return fault("reduces a finished value");
    const Expr sum = now.kind == StepKind::kAdasum ? expressions_.adasum(x, y) : expressions_.combine(x, y);
    result.push_back({.offset = at, .count = end - at, .cell = {sum, 0}, .element = element});
    at = end;
  }
  memories_[event.rank].write(now.to, result);
  return Status::ok();
}

Status SymbolicExecution::stuck() const {
  for (Rank rank = 0; rank < static_cast<Rank>(schedules_.size()); ++rank)
    for (size_t i = 0; i < states_[rank].size(); ++i)
      if (!states_[rank][i].is_complete)
        return step_fault(
            rank, i, schedules_[rank],
            states_[rank][i].is_started ? "waits for its peer forever" : "never starts: deadlock");
  return Status::ok();
}

}  // namespace rueda::schedule
