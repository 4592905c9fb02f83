#include "rueda/schedule/traffic_plan.h"

#include <utility>

#include "rueda/schedule/cost.h"

namespace rueda::schedule {
namespace {

double wire_bytes(const Spec& spec, const Step& step, int64_t count) {
  if (step.wire == WireType::kEncoded)
    return static_cast<double>(count / kWireBlock * wire_block_bytes(spec.wire));
  return step.wire == WireType::kElement ? bytes_of(spec, count) : partial_bytes_of(spec, count);
}

}  // namespace

TrafficPlan::TrafficPlan(const Spec& spec, std::vector<Schedule> schedules)
    : schedules_(std::move(schedules)), nodes_(schedules_.size()) {
  const auto size = static_cast<size_t>(this->size());
  std::vector<int32_t> channel_of(size * size, -1);
  const auto channel_between = [&](Rank from, Rank to) {
    int32_t& channel = channel_of[static_cast<size_t>(from) * size + static_cast<size_t>(to)];
    if (channel >= 0) return channel;
    channel = static_cast<int32_t>(channels_.size());
    channels_.push_back({.from = from, .to = to, .sends = {}, .recvs = {}});
    return channel;
  };
  for (Rank member = 0; member < this->size(); ++member) {
    const std::vector<Step>& steps = schedules_[member].steps;
    std::vector<Node>& nodes = nodes_[member];
    nodes.resize(steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      const auto at = static_cast<int32_t>(i);
      const bool is_send = step.kind == StepKind::kSend;
      nodes[i].waits_for = static_cast<int32_t>(step.after.size());
      nodes[i].bytes = wire_bytes(spec, step, is_send ? step.from.count : step.to.count);
      for (const int32_t earlier : step.after) nodes[earlier].dependents.push_back(at);
      if (!is_message(step)) continue;
      nodes[i].channel = is_send ? channel_between(member, step.peer) : channel_between(step.peer, member);
      Channel& channel = channels_[nodes[i].channel];
      (is_send ? channel.sends : channel.recvs).push_back(at);
    }
  }
}

}  // namespace rueda::schedule
