#include "simulate/server_network.h"

#include <algorithm>
#include <utility>

#include "simulate/call_prices.h"

namespace rueda::simulate {

using schedule::Traffic;

schedule::Schedule in_parts(const schedule::Schedule& whole) {
  constexpr int64_t kPart = int64_t{1} << 18;  // elements: 1 MiB
  schedule::Schedule cut{.steps = {}, .scratch_count = whole.scratch_count, .name = whole.name};
  std::vector<int32_t> last;  // [step of whole] its last part
  for (const schedule::Step& step : whole.steps) {
    const bool is_send = step.kind == schedule::StepKind::kSend;
    const bool is_message = schedule::is_message(step);
    const int64_t count = is_send ? step.from.count : step.to.count;
    int64_t done = 0;
    do {
      schedule::Step part = step;
      const int64_t size = is_message ? std::min(kPart, count - done) : count;
      for (schedule::Slice* slice : {&part.to, &part.from}) {
        if (!is_message || slice->count == 0) continue;
        slice->begin += done;
        slice->count = size;
      }
      if (done > 0)
        part.after = {static_cast<int32_t>(cut.steps.size()) - 1};
      else
        for (int32_t& earlier : part.after) earlier = last[static_cast<size_t>(earlier)];
      cut.steps.push_back(std::move(part));
      done += size;
    } while (done < count);
    last.push_back(static_cast<int32_t>(cut.steps.size()) - 1);
  }
  return cut;
}

ServerNetwork::ServerNetwork(const Layout& layout, const Costs& costs, std::vector<int32_t> host_of,
                             Agenda& agenda)
    : agenda_(agenda),
      reduce_gbps_(layout.topology.reduce_gbps),
      traffic_(layout.network, std::move(host_of), layout.topology.reduce_gbps, core_costs(layout, costs)) {}

ServerNetwork::Key ServerNetwork::open(std::shared_ptr<const schedule::TrafficPlan> plan,
                                       std::vector<Rank> members, std::function<void(Rank)> ended) {
  const auto left = std::ssize(members);
  const Key call = traffic_.open(std::move(plan), std::move(members));
  open_.emplace(call, Open{.ended = std::move(ended), .left = left});
  return call;
}

void ServerNetwork::join(Key call, Rank member, Nanos at) {
  traffic_.join(call, member, static_cast<double>(at) / 1e3);
}

void ServerNetwork::work(Rank process, double us, std::function<void()> then) {
  const auto count = static_cast<int64_t>(us * reduce_gbps_ * 1e3 / 4);  // that a core reduces in this time
  if (count <= 0) return agenda_.at(agenda_.now(), std::move(then));
  std::shared_ptr<const schedule::TrafficPlan>& plan = work_[count];
  if (!plan) {
    const schedule::Spec spec{.count = count, .counts = {}, .scale = {}, .segment_counts = {}};
    schedule::Step step{.kind = schedule::StepKind::kReduce};
    step.to = step.from = step.from2 = {schedule::Buffer::kOutput, 0, count};
    plan = std::make_shared<const schedule::TrafficPlan>(
        spec, std::vector<schedule::Schedule>{{.steps = {step}, .name = "work"}});
  }
  join(open(plan, {process}, [then = std::move(then)](Rank) { then(); }), 0, agenda_.now());
}

bool ServerNetwork::run_next() {
  const Nanos next = nanos_of(traffic_.next_us());
  if (next == kNever && agenda_.next() == kNever) return false;
  if (agenda_.next() < next) {
    agenda_.run_next();
    return true;
  }
  agenda_.move_to(next);
  ended_.clear();
  traffic_.advance(ended_);
  for (const Traffic::Ended& one : ended_) {
    const auto at = open_.find(one.call);
    agenda_.at(nanos_of(one.at_us), [ended = at->second.ended, member = one.member] { ended(member); });
    if (--at->second.left == 0) open_.erase(at);
  }
  return true;
}

Status ServerNetwork::run_until(const std::function<bool()>& is_done) {
  while (!is_done())
    if (!run_next())
      return {Code::kInternal, "the simulated servers hang; please report this, with the command"};
  return Status::ok();
}

}  // namespace rueda::simulate
