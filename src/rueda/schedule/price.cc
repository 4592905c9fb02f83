#include "rueda/schedule/price.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <string>
#include <tuple>

#include "rueda/schedule/cost.h"

namespace rueda::schedule {
namespace {

bool is_message(const Step& step) {
  return step.kind == StepKind::kSend || step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce;
}

class Simulation {
 public:
  Simulation(const Spec& spec, const Topology& topology, const Network& network,
             std::span<const Schedule> schedules, std::span<const double> starts_us)
      : spec_(spec),
        topology_(topology),
        network_(network),
        schedules_(schedules),
        n_(topology.size()),
        done_(starts_us.begin(), starts_us.end()) {
    const auto ranks = static_cast<size_t>(n_);
    out_.resize(ranks);
    in_.resize(ranks);
    cpu_.resize(ranks);
    host_out_.resize(topology.host_count());
    host_in_.resize(topology.host_count());
    pair_.resize(host_in_.size() * host_in_.size());
    in_line_.resize(host_in_.size() * host_in_.size());
    channels_.resize(ranks * ranks);
    states_.resize(ranks);
    for (Rank rank = 0; rank < n_; ++rank) index_rank(rank);
  }

  Result<std::vector<double>> run() {
    for (Rank rank = 0; rank < n_; ++rank)
      for (size_t i = 0; i < states_[rank].size(); ++i)
        if (states_[rank][i].waits_for == 0) make_ready(rank, i);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.channel >= 0)
        transfer(event);
      else
        compute(event);
    }
    if (open_ > 0)
      return Status{Code::kInternal,
                    std::string(schedules_[0].name) + ": the schedules deadlock, so they have no price"};
    return std::move(done_);
  }

 private:
  struct StepState {
    int32_t waits_for = 0;
    int64_t channel = -1;
    double ready = 0;  // when all of `after` was complete
    std::vector<size_t> dependents;
  };
  struct Channel {
    std::vector<size_t> sends, recvs;
    size_t sends_posted = 0, recvs_posted = 0, met = 0;
    std::vector<double> arrivals;  // of the messages that were sent
    double last_ready = 0;         // messages of a channel keep their order
  };
  struct Event {
    double at = 0;
    int64_t order = 0;     // breaks ties the same way every time
    int64_t channel = -1;  // of a message that is sent; -1 = a local step or a receive that is ready
    Rank rank = -1;
    size_t index = 0;         // of the message in its channel, or of the step
    bool is_in_line = false;  // a message that waits for its turn
    bool operator>(const Event& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };

  void index_rank(Rank rank) {
    const auto& steps = schedules_[rank].steps;
    auto& states = states_[rank];
    states.resize(steps.size());
    open_ += static_cast<int64_t>(steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      states[i].waits_for = static_cast<int32_t>(steps[i].after.size());
      states[i].ready = done_[rank];  // its start, so far
      for (int32_t earlier : steps[i].after) states[earlier].dependents.push_back(i);
      if (!is_message(steps[i])) continue;
      const bool is_send = steps[i].kind == StepKind::kSend;
      states[i].channel = is_send ? int64_t{rank} * n_ + steps[i].peer : int64_t{steps[i].peer} * n_ + rank;
      auto& channel = channels_[states[i].channel];
      (is_send ? channel.sends : channel.recvs).push_back(i);
    }
  }

  void make_ready(Rank rank, size_t step) {
    const StepState& state = states_[rank][step];
    if (state.channel < 0) {
      events_.push({.at = state.ready, .order = next_order_++, .rank = rank, .index = step});
      return;
    }
    Channel& channel = channels_[state.channel];
    const auto from = static_cast<Rank>(state.channel / n_);
    const auto to = static_cast<Rank>(state.channel % n_);
    const auto post = [](const auto& steps, size_t& posted, const std::vector<StepState>& states) {
      while (posted < steps.size() && states[steps[posted]].waits_for == 0) ++posted;
    };
    const size_t first_send = channel.sends_posted;
    post(channel.sends, channel.sends_posted, states_[from]);
    for (size_t i = first_send; i < channel.sends_posted; ++i) {
      channel.last_ready = std::max(channel.last_ready, states_[from][channel.sends[i]].ready);
      events_.push({.at = channel.last_ready,
                    .order = next_order_++,
                    .channel = state.channel,
                    .rank = from,
                    .index = i});
    }
    post(channel.recvs, channel.recvs_posted, states_[to]);
    arrive(channel, to);
  }

  // The receives whose message has arrived, in order.
  void arrive(Channel& channel, Rank to) {
    for (; channel.met < std::min(channel.arrivals.size(), channel.recvs_posted); ++channel.met) {
      const size_t recv = channel.recvs[channel.met];
      const double at = std::max(channel.arrivals[channel.met], states_[to][recv].ready);
      events_.push({.at = at, .order = next_order_++, .rank = to, .index = recv});
    }
  }

  void transfer(Event event) {
    Channel& channel = channels_[event.channel];
    const auto from = static_cast<Rank>(event.channel / n_);
    const auto to = static_cast<Rank>(event.channel % n_);
    const int32_t from_host = topology_.host_of[from];
    const int32_t to_host = topology_.host_of[to];
    const bool is_local = from_host == to_host;
    const size_t pair = static_cast<size_t>(to_host) * host_in_.size() + from_host;
    double start = std::max({event.at, out_[from], in_[to]});
    if (!is_local) start = std::max({start, host_out_[from_host], host_in_[to_host], pair_[pair]});
    int64_t& in_line = in_line_[pair];
    if (!event.is_in_line) ++in_line;
    if (start > event.at) {  // others may be ready before the link is free: decide again then
      event.at = start;
      event.is_in_line = true;
      events_.push(event);
      return;
    }
    const double slowdown = is_local ? 1 : contention(senders_to(to_host));
    --in_line;
    const Step& send = schedules_[from].steps[channel.sends[event.index]];
    const LinkCost& link = network_.link(from_host, to_host);
    const double bytes = wire_bytes(send, send.from.count);
    double sent = start + bytes / (link.bandwidth_gbps * 1e3);
    if (!is_local) {
      // If several hosts send to one, its port loses time and the links do not. A port that is faster than
      // the link is free for other pairs while the link still carries the message.
      const double left = start + slowdown * bytes / (network_.port_gbps[from_host] * 1e3);
      const double came = start + slowdown * bytes / (network_.port_gbps[to_host] * 1e3);
      sent = std::max({sent, left, came});
      host_out_[from_host] = left;
      host_in_[to_host] = came;
      pair_[pair] = sent;
    }
    out_[from] = sent + gap_us(link);
    in_[to] = sent;
    channel.arrivals.push_back(sent + link.latency_us);
    complete(from, channel.sends[event.index], sent);
    arrive(channel, to);
  }

  [[nodiscard]] int32_t senders_to(int32_t host) const {
    const auto first = in_line_.begin() + static_cast<std::ptrdiff_t>(host * host_in_.size());
    const auto last = first + static_cast<std::ptrdiff_t>(host_in_.size());
    return static_cast<int32_t>(std::count_if(first, last, [](int64_t waiting) { return waiting > 0; }));
  }

  [[nodiscard]] double wire_bytes(const Step& step, int64_t count) const {
    return step.wire == WireType::kElement ? bytes_of(spec_, count) : partial_bytes_of(spec_, count);
  }

  void compute(const Event& event) {
    const Step& step = schedules_[event.rank].steps[event.index];
    if (step.kind == StepKind::kRecv) {  // the transport has put it into place
      complete(event.rank, event.index, event.at);
      return;
    }
    const double done =
        std::max(event.at, cpu_[event.rank]) + reduce_us(topology_, wire_bytes(step, step.to.count));
    cpu_[event.rank] = done;
    complete(event.rank, event.index, done);
  }

  void complete(Rank rank, size_t step, double at) {
    --open_;
    done_[rank] = std::max(done_[rank], at);
    for (size_t dependent : states_[rank][step].dependents) {
      StepState& next = states_[rank][dependent];
      next.ready = std::max(next.ready, at);
      if (--next.waits_for == 0) make_ready(rank, dependent);
    }
  }

  const Spec& spec_;
  const Topology& topology_;
  const Network& network_;
  std::span<const Schedule> schedules_;
  Rank n_;
  std::vector<double> done_;  // [ranks] when the last step so far was complete; at first, the rank's start
  // When each is free again: the two directions of a rank, the two directions of a host to other hosts, the
  // core of a rank.
  std::vector<double> out_, in_, host_out_, host_in_, cpu_;
  std::vector<double> pair_;       // … and the link [receiving host * hosts + sending host]
  std::vector<int64_t> in_line_;   // [receiving host * hosts + sending host] messages that are ready to go
  std::vector<Channel> channels_;  // [sender * ranks + receiver]
  std::vector<std::vector<StepState>> states_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t next_order_ = 0;
  int64_t open_ = 0;
};

}  // namespace

Result<std::vector<double>> finish_times_us(const Spec& spec, const Topology& topology,
                                            const Network& network, std::span<const Schedule> schedules,
                                            std::span<const double> starts_us) {
  const auto ranks = static_cast<size_t>(topology.size());
  if (schedules.size() != ranks || starts_us.size() != ranks)
    return Status{Code::kInvalidArgument, "a price needs one schedule and one start for each rank"};
  if (!std::ranges::all_of(starts_us, [](double start) { return std::isfinite(start) && start >= 0; }))
    return Status{Code::kInvalidArgument, "the start of a rank must be at least 0 microseconds"};
  if (Status status = check_network(network, topology.host_count()); !status.is_ok()) return status;
  return Simulation(spec, topology, network, schedules, starts_us).run();
}

Result<double> price_us(const Spec& spec, const Topology& topology, const Network& network,
                        std::span<const Schedule> schedules, std::span<const double> starts_us) {
  const auto done = finish_times_us(spec, topology, network, schedules, starts_us);
  if (!done.is_ok()) return done.status();
  return done.value().empty() ? 0 : std::ranges::max(done.value());
}

Result<double> price_us(const Spec& spec, const Topology& topology, std::span<const Schedule> schedules) {
  const std::vector<double> starts(static_cast<size_t>(topology.size()), 0);
  return price_us(spec, topology, Network::uniform(topology), schedules, starts);
}

}  // namespace rueda::schedule
