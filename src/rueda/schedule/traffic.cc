#include "rueda/schedule/traffic.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/schedule/cost.h"

namespace rueda::schedule {
namespace {

// How many times longer bytes take to a port to which many hosts send, if what they send overflows the queue
// of the switch. Between namespaces of 1 Gbit/s, an allreduce of 16 MiB by the direct algorithm took 1.04 to
// 1.08 times its bytes' time with 3 to 7 senders to each receiver (`rueda bench replay -np 4 … 8 -- rueda
// bench allreduce --algorithm direct --sizes 16MiB`). Switches with shorter queues may do worse.
constexpr double kQueueBytes = 1 << 20;  // of a switch's port
constexpr int32_t kManySenders = 3;
constexpr double kSlowdown = 1.05;
double incast(int32_t senders, double waiting_bytes) {
  return senders < kManySenders || waiting_bytes < kQueueBytes ? 1 : kSlowdown;
}

}  // namespace

Traffic::Traffic(Network network, std::vector<int32_t> host_of, double reduce_gbps, CoreCosts costs)
    : network_(std::move(network)),
      host_of_(std::move(host_of)),
      reduce_gbps_(reduce_gbps),
      costs_(std::move(costs)),
      uplinks_(network_.tiers) {
  const size_t ranks = host_of_.size(), hosts = network_.port_gbps.size();
  core_.resize(ranks);
  for (std::vector<double>* of_hosts : {&use_.port_out, &use_.port_in}) of_hosts->resize(hosts);
  in_free_.resize(ranks);
  senders_out_.resize(ranks + hosts);
  port_in_free_.resize(hosts);
  senders_.resize(hosts);
  bytes_to_.resize(hosts);
  link_free_.resize(hosts * hosts);
  on_way_.resize(hosts * hosts);
  for (size_t host = 0; host < hosts; ++host) {
    const Burst burst = network_.bursts.empty() ? Burst() : network_.bursts[host];
    out_.emplace_back(network_.port_gbps[host], burst.bytes, burst.gbps);
    in_.push_back(out_.back());
  }
  for (const int32_t count : costs_.cores) cores_.emplace_back(static_cast<size_t>(count));
  use_.cores.resize(costs_.machine_of.empty() ? ranks : cores_.size());
}

Traffic::CallKey Traffic::open(std::shared_ptr<const TrafficPlan> plan, std::vector<Rank> members) {
  RUEDA_CHECK(std::cmp_equal(members.size(), plan->size()), "a call has one schedule for each member");
  Call call;
  call.steps.resize(members.size());
  call.open.assign(members.size(), -1);
  call.done.resize(members.size());
  call.channels.resize(plan->channels_.size());
  call.members = std::move(members);
  call.plan = std::move(plan);
  calls_.push_back(std::move(call));
  return first_call_ + calls_.size() - 1;
}

void Traffic::join(CallKey call, Rank member, double at_us) {
  push(find(call),
       {.at = at_us, .order = next_order_++, .call = call, .member = member, .what = What::kJoin});
}

void Traffic::advance(std::vector<Ended>& ended) {
  const Event event = events_.top();
  events_.pop();
  ended_ = &ended;
  if (event.what == What::kFree)
    look_at_waiting(event.index, event.at);
  else
    happen(event);
  drop_ended();
}

void Traffic::happen(const Event& event) {
  Call& call = find(event.call);
  --call.events;
  switch (event.what) {
    case What::kJoin:
      begin(call, event);
      break;
    case What::kSend:
      send(call, event);
      break;
    case What::kTransfer:
      transfer(call, event);
      break;
    case What::kLand:
      land(call, event);
      break;
    case What::kArrive:
      arrive(call, event);
      break;
    case What::kLocal:
      compute(call, event);
      break;
    case What::kFree:
      break;  // of no call
  }
}

void Traffic::drop_ended() {
  const auto is_over = [](const Call& call) {
    return call.events == 0 && (call.is_abandoned || call.ended == std::ssize(call.members));
  };
  while (!calls_.empty() && is_over(calls_.front())) {
    calls_.pop_front();
    ++first_call_;
  }
}

void Traffic::abandon(CallKey call) {
  find(call).is_abandoned = true;
  drop_ended();
}

void Traffic::push(Call& call, const Event& event) {
  ++call.events;
  events_.push(event);
}

void Traffic::begin(Call& call, const Event& event) {
  const std::vector<TrafficPlan::Node>& nodes = call.plan->nodes_[event.member];
  std::vector<StepState>& states = call.steps[event.member];
  states.resize(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) states[i] = {.waits_for = nodes[i].waits_for, .ready = event.at};
  call.open[event.member] = std::ssize(nodes);
  call.done[event.member] = event.at;
  if (nodes.empty()) return end(call, event.call, event.member);
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].waits_for == 0) make_ready(call, event.call, event.member, static_cast<int32_t>(i));
}

void Traffic::make_ready(Call& call, CallKey key, Rank member, int32_t step) {
  const int32_t at = call.plan->nodes_[member][step].channel;
  if (at < 0) {
    push(call, {.at = call.steps[member][step].ready,
                .order = next_order_++,
                .call = key,
                .member = member,
                .index = step,
                .what = What::kLocal});
    return;
  }
  const TrafficPlan::Channel& channel = call.plan->channels_[at];
  ChannelState& state = call.channels[at];
  const auto post = [](const std::vector<int32_t>& steps, size_t& posted,
                       const std::vector<StepState>& states) {
    while (!states.empty() && posted < steps.size() && states[steps[posted]].waits_for == 0) ++posted;
  };
  const size_t first_send = state.sends_posted;
  post(channel.sends, state.sends_posted, call.steps[channel.from]);
  for (size_t i = first_send; i < state.sends_posted; ++i) {
    state.last_ready = std::max(state.last_ready, call.steps[channel.from][channel.sends[i]].ready);
    push(call, {.at = state.last_ready,
                .order = next_order_++,
                .call = key,
                .channel = at,
                .member = channel.from,
                .index = static_cast<int32_t>(i),
                .what = What::kSend});
  }
  post(channel.recvs, state.recvs_posted, call.steps[channel.to]);
  take_arrivals(call, key, at);
}

// The receives whose message has arrived, in order.
void Traffic::take_arrivals(Call& call, CallKey key, int32_t channel) {
  ChannelState& state = call.channels[channel];
  const TrafficPlan::Channel& planned = call.plan->channels_[channel];
  for (; state.met < std::min(state.arrivals.size(), state.recvs_posted); ++state.met) {
    const int32_t recv = planned.recvs[state.met];
    const double at = std::max(state.arrivals[state.met], call.steps[planned.to][recv].ready);
    push(call, {.at = at,
                .order = next_order_++,
                .call = key,
                .member = planned.to,
                .index = recv,
                .what = What::kLocal});
  }
}

void Traffic::send(Call& call, const Event& event) {
  const TrafficPlan::Channel& channel = call.plan->channels_[event.channel];
  const Rank from = call.members[channel.from], to = call.members[channel.to];
  Event next = event;
  next.what = What::kTransfer;
  const double us = end_us(call.plan->nodes_[channel.from][channel.sends[event.index]].bytes);
  if (host_of_[from] != host_of_[to] && us > 0) next.at = work(from, event.at, us);
  push(call, next);
}

// A message leaves as soon as its rank and the port of its host are free. What the link or the receiver's
// port cannot take at that moment waits on the way, and holds up nothing that goes elsewhere.
void Traffic::transfer(Call& call, Event event) {
  const TrafficPlan::Channel& channel = call.plan->channels_[event.channel];
  const Rank from = call.members[channel.from], to = call.members[channel.to];
  const int32_t from_host = host_of_[from], to_host = host_of_[to];
  const bool is_local = from_host == to_host;
  const int32_t step = channel.sends[event.index];
  const double bytes = call.plan->nodes_[channel.from][step].bytes;
  Sender& port = senders_out_[host_of_.size() + static_cast<size_t>(from_host)];
  Sender& shared = is_local ? senders_out_[from] : port;
  if (!event.is_on_way) {
    if (!is_local) {
      if (++on_way_[pair_of(from_host, to_host)] == 1) ++senders_[to_host];
      bytes_to_[to_host] += bytes;
    }
    event.is_on_way = true;
    double& sent = call.channels[event.channel].sent;
    event.turn = std::max(shared.turn, sent);
    sent = event.turn + bytes;
  }
  if (senders_out_[from].free > event.at) return wait_for(senders_out_[from], from, event);
  if (!is_local && port.free > event.at)
    return wait_for(port, static_cast<int32_t>(host_of_.size()) + from_host, event);
  shared.turn = std::max(shared.turn, event.turn);
  const LinkCost& link = network_.link(from_host, to_host);
  const double us = bytes / (link.bandwidth_gbps * 1e3);
  double left = event.at + us;
  event.through = left;
  if (!is_local) {
    left = out_[from_host].pass(bytes, event.at);
    port.free = left;
    double& link_free = link_free_[pair_of(from_host, to_host)];
    link_free = std::max({left, event.at + us, link_free + us});
    event.through = uplinks_.pass(from_host, to_host, bytes, event.at, link_free);
    use_.port_out[from_host] += left - event.at;
  }
  senders_out_[from].free = left + gap_us(link);
  if (uplinks_.are_between(from_host, to_host)) {
    // It may have waited in switches: what others send to that port meanwhile comes first.
    event.at = std::max(event.at, event.through - bytes / (network_.fastest_gbps(to_host) * 1e3));
    event.what = What::kLand;
    push(call, event);
    return complete(call, event.call, channel.from, step, left);
  }
  land(call, event);
  complete(call, event.call, channel.from, step, is_local ? in_free_[to] : left);
}

// The port of the receiving host, and the rank itself.
void Traffic::land(Call& call, const Event& event) {
  const TrafficPlan::Channel& channel = call.plan->channels_[event.channel];
  const Rank from = call.members[channel.from], to = call.members[channel.to];
  const int32_t from_host = host_of_[from], to_host = host_of_[to];
  const double bytes = call.plan->nodes_[channel.from][channel.sends[event.index]].bytes;
  double came = event.through;
  if (from_host != to_host) {
    const double slowdown = network_.slows_many_senders ? incast(senders_[to_host], bytes_to_[to_host]) : 1;
    const double begins = std::max(event.at, port_in_free_[to_host]);
    const double ends = in_[to_host].pass(slowdown * bytes, begins);
    use_.port_in[to_host] += ends - begins;
    came = port_in_free_[to_host] = std::max(came, ends);
  }
  const LinkCost& link = network_.link(from_host, to_host);
  if (from_host == to_host) {
    in_free_[to] = std::max(came, in_free_[to] + bytes / (link.bandwidth_gbps * 1e3));
    came = in_free_[to];
  }
  Event arrival = event;
  arrival.at = came + link.latency_us;
  arrival.what = What::kArrive;
  push(call, arrival);
}

void Traffic::arrive(Call& call, const Event& event) {
  const TrafficPlan::Channel& channel = call.plan->channels_[event.channel];
  const Rank from = call.members[channel.from], to = call.members[channel.to];
  const int32_t from_host = host_of_[from], to_host = host_of_[to];
  double us = 0;
  if (from_host != to_host) {
    if (--on_way_[pair_of(from_host, to_host)] == 0) --senders_[to_host];
    const double bytes = call.plan->nodes_[channel.from][channel.sends[event.index]].bytes;
    bytes_to_[to_host] -= bytes;
    us = end_us(bytes);
  }
  call.channels[event.channel].arrivals.push_back(us > 0 ? work(to, event.at, us) : event.at);
  take_arrivals(call, event.call, event.channel);
}

void Traffic::wait_for(Sender& sender, int32_t number, const Event& event) {
  ++find(event.call).events;
  sender.waiting.push_back(event);
  std::ranges::push_heap(sender.waiting, std::greater<>(), &Event::place_in_line);
  wake(sender, number);
}

void Traffic::wake(Sender& sender, int32_t number) {
  if (sender.is_woken || sender.waiting.empty()) return;
  sender.is_woken = true;
  events_.push(
      {.at = sender.free, .order = sender.waiting.front().order, .index = number, .what = What::kFree});
}

// The channels take turns, byte for byte, as connections do. A message whose port is busy waits for that.
void Traffic::look_at_waiting(int32_t number, double now) {
  Sender& sender = senders_out_[number];
  sender.is_woken = false;
  while (!sender.waiting.empty() && sender.free <= now) {
    std::ranges::pop_heap(sender.waiting, std::greater<>(), &Event::place_in_line);
    Event event = sender.waiting.back();
    sender.waiting.pop_back();
    Call& call = find(event.call);
    --call.events;
    event.at = now;
    transfer(call, event);
  }
  wake(sender, number);
}

void Traffic::compute(Call& call, const Event& event) {
  const Step& step = call.plan->schedules_[event.member].steps[event.index];
  if (step.kind == StepKind::kRecv)  // the transport has put it into place
    return complete(call, event.call, event.member, event.index, event.at);
  const double us = call.plan->nodes_[event.member][event.index].bytes / (reduce_gbps_ * 1e3);
  complete(call, event.call, event.member, event.index, work(call.members[event.member], event.at, us));
}

// When a core of this rank has done so much work that it may begin at this time.
double Traffic::work(Rank rank, double at, double us) {
  double start = std::max(at, core_[rank]);
  if (costs_.machine_of.empty()) {
    use_.cores[rank] += us;
    return core_[rank] = start + us;
  }
  const int32_t machine = costs_.machine_of[host_of_[rank]];
  double& core = *std::ranges::min_element(cores_[machine]);
  start = std::max(start, core);
  use_.cores[machine] += us;
  return core_[rank] = core = start + us;
}

void Traffic::complete(Call& call, CallKey key, Rank member, int32_t step, double at) {
  call.done[member] = std::max(call.done[member], at);
  if (--call.open[member] == 0) return end(call, key, member);
  for (const int32_t dependent : call.plan->nodes_[member][step].dependents) {
    StepState& next = call.steps[member][dependent];
    next.ready = std::max(next.ready, at);
    if (--next.waits_for == 0) make_ready(call, key, member, dependent);
  }
}

void Traffic::end(Call& call, CallKey key, Rank member) {
  ++call.ended;
  if (!call.is_abandoned) ended_->push_back({.call = key, .member = member, .at_us = call.done[member]});
}

std::vector<Traffic::Ended> run_alone(Traffic& traffic, const std::shared_ptr<const TrafficPlan>& plan,
                                      std::span<const double> starts_us, size_t calls) {
  std::vector<Rank> members(starts_us.size());
  std::iota(members.begin(), members.end(), 0);
  for (size_t i = 0; i < calls; ++i) {
    const Traffic::CallKey call = traffic.open(plan, members);
    for (const Rank member : members) traffic.join(call, member, starts_us[member]);
  }
  std::vector<Traffic::Ended> ended;
  while (std::isfinite(traffic.next_us())) traffic.advance(ended);
  return ended;
}

}  // namespace rueda::schedule
