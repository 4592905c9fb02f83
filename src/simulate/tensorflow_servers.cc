// Parameter servers as TensorFlow 1.x has them, over connections in both directions (gRPC). A variable, or
// the part of one that a server has, travels to and from each worker by itself.
#include <algorithm>
#include <map>
#include <utility>

#include "bench/gradients.h"
#include "simulate/server_network.h"
#include "simulate/servers.h"

namespace rueda::simulate {
namespace {

using schedule::Slice;
using schedule::Step;
using schedule::StepKind;

// n workers send count elements to a process that sums them, or get them from it.
std::shared_ptr<const schedule::TrafficPlan> variable_plan(int64_t count, Rank workers, bool is_push) {
  std::vector<schedule::Schedule> schedules(static_cast<size_t>(workers) + 1);
  const Slice all{schedule::Buffer::kOutput, 0, count};
  for (Rank worker = 0; worker < workers; ++worker) {
    Step of_worker{.kind = is_push ? StepKind::kSend : StepKind::kRecv, .peer = workers};
    Step of_server{.kind = is_push ? StepKind::kRecvReduce : StepKind::kSend, .peer = worker};
    of_worker.to = of_worker.from = of_server.to = of_server.from = all;
    schedules[static_cast<size_t>(worker)].steps.push_back(std::move(of_worker));
    schedules.back().steps.push_back(std::move(of_server));
  }
  const schedule::Spec spec{.count = count, .counts = {}, .scale = {}, .segment_counts = {}};
  for (schedule::Schedule& one : schedules) one = in_parts(one);
  return std::make_shared<const schedule::TrafficPlan>(spec, std::move(schedules));
}

Layout without_incast(Layout layout) {
  layout.network.slows_many_senders = false;
  return layout;
}

class TensorflowServers {
 public:
  TensorflowServers(const Program& program, const JobOptions& options, const Servers& servers,
                    const Platform& platform)
      : program_(program),
        options_(options),
        workers_(options.engine.ranks),
        network_(without_incast(platform.layout), platform.costs, hosts_of(servers, platform), agenda_),
        states_(static_cast<size_t>(workers_)) {
    const int count = servers.count.of(workers_);
    std::vector<int64_t> counts;
    for (const Gradient& gradient : program.gradients) counts.push_back(gradient.count);
    const auto shards = bench::assign_shards(counts, count);
    parts_.resize(counts.size());
    std::vector<int64_t> load(static_cast<size_t>(count));
    for (size_t i = counts.size(); i-- > 0;) {  // as the model makes its variables
      if (servers.is_whole) {
        const auto least = static_cast<int>(std::ranges::min_element(load) - load.begin());
        const int server = servers.is_greedy ? least : bench::server_of(i, counts.size(), count);
        load[static_cast<size_t>(server)] += counts[i];
        parts_[i].push_back({.count = counts[i], .server = server});
        continue;
      }
      for (int server = 0; server < count; ++server)
        if (shards[i][static_cast<size_t>(server)] > 0)
          parts_[i].push_back({.count = shards[i][static_cast<size_t>(server)], .server = server});
    }
    result_.steps.resize(states_.size());
  }

  Result<JobResult> run() {
    begin_step();
    const Status status = network_.run_until([this] { return step_ == options_.steps; });
    if (!status.is_ok()) return status;
    result_.use = {.busy_us = network_.use(),
                   .algorithms = {{"variables", calls_that_count(options_, result_)}}};
    return std::move(result_);
  }

 private:
  struct Part {  // of a variable, on one server
    int64_t count = 0;
    int server = 0;
    ServerNetwork::Key push = 0;
  };
  struct Worker {
    std::vector<size_t> missing;  // [variable] parts that it has not read
    size_t next = 0;              // the variable of the forward pass, or the gradient of the backward pass
    bool is_waiting = false;
    Nanos origin = 0;  // from when `ready` counts
  };

  // Of workers, then of servers.
  static std::vector<int32_t> hosts_of(const Servers& servers, const Platform& platform) {
    std::vector<int32_t> hosts = platform.layout.topology.host_of;
    if (servers.is_dedicated) return hosts;  // behind the workers': with_servers()
    const auto ranks = static_cast<int>(hosts.size());
    const bench::ServerPlan plan{.servers = servers.count.of(ranks)};
    for (int server = 0; server < plan.servers; ++server)
      hosts.push_back(hosts[static_cast<size_t>(plan.rank_of(server, ranks))]);
    return hosts;
  }

  [[nodiscard]] std::vector<Rank> members_with(int server) const {
    std::vector<Rank> members;
    for (Rank worker = 0; worker < workers_; ++worker) members.push_back(worker);
    members.push_back(workers_ + server);
    return members;
  }

  const std::shared_ptr<const schedule::TrafficPlan>& plan_of(int64_t count, bool is_push) {
    std::shared_ptr<const schedule::TrafficPlan>& plan = plans_[{count, is_push}];
    if (!plan) plan = variable_plan(count, workers_, is_push);
    return plan;
  }

  // All variables are new: workers read them, in the order in which the forward pass needs them.
  void begin_step() {
    const Nanos now = agenda_.now();
    old_ = 0;
    computed_ = 0;
    for (Rank worker = 0; worker < workers_; ++worker) {
      Worker& state = states_[static_cast<size_t>(worker)];
      state = {.missing = std::vector<size_t>(parts_.size()), .next = parts_.size()};
      for (size_t i = 0; i < parts_.size(); ++i) state.missing[i] = parts_[i].size();
      result_.steps[worker].push_back({.began = now});
    }
    for (size_t i = parts_.size(); i-- > 0;)
      for (Part& part : parts_[i]) {
        ++old_;
        calls_ += 2;
        const auto members = members_with(part.server);
        const ServerNetwork::Key pull =
            network_.open(plan_of(part.count, false), members, [this, i](Rank who) {
              if (who < workers_) take(who, i);
            });
        for (Rank member = 0; member <= workers_; ++member) network_.join(pull, member, now);
        part.push = network_.open(plan_of(part.count, true), members, [this](Rank who) {
          if (who == workers_) renew();
        });
        network_.join(part.push, workers_, now);
      }
    for (Rank worker = 0; worker < workers_; ++worker) go_forward(worker);
  }

  void take(Rank worker, size_t variable) {
    Worker& state = states_[static_cast<size_t>(worker)];
    if (--state.missing[variable] > 0 || !state.is_waiting || state.next != variable + 1) return;
    state.is_waiting = false;
    go_forward(worker);
  }

  [[nodiscard]] Nanos longer(Rank worker, Nanos time) const {
    return static_cast<Nanos>(static_cast<double>(time) * options_.slower[worker][step_]);
  }

  void go_forward(Rank worker) {
    Worker& state = states_[static_cast<size_t>(worker)];
    while (state.next > 0) {
      if (state.missing[state.next - 1] > 0) {
        state.is_waiting = true;
        return;
      }
      const Nanos takes = longer(worker, program_.gradients[--state.next].forward);
      if (takes > 0) return agenda_.at(agenda_.now() + takes, [this, worker] { go_forward(worker); });
    }
    state.origin = agenda_.now() - longer(worker, program_.forward());
    send_next(worker);
  }

  void send_next(Rank worker) {
    const Worker& state = states_[static_cast<size_t>(worker)];
    const bool is_last = state.next == parts_.size();
    const Nanos ready = is_last ? program_.compute : program_.gradients[state.next].ready;
    agenda_.at(state.origin + longer(worker, ready), [this, worker, is_last] {
      if (is_last) {
        result_.steps[worker].back().computed = agenda_.now();
        ++computed_;
        return end_if_done();
      }
      for (const Part& part : parts_[states_[static_cast<size_t>(worker)].next++])
        network_.join(part.push, worker, agenda_.now());
      send_next(worker);
    });
  }

  // A server has summed a part of a variable. When all are new, every worker is told that it may go on.
  void renew() {
    --old_;
    end_if_done();
  }

  void end_if_done() {
    if (old_ > 0 || computed_ < workers_) return;
    const Nanos last = agenda_.now() + 2 * options_.engine.flight + options_.wake;
    for (auto& steps : result_.steps) steps.back().ended = last;
    result_.calls.push_back(calls_);
    result_.messages.push_back(0);
    agenda_.at(last, [this] {
      if (++step_ < options_.steps) begin_step();
    });
  }

  const Program& program_;
  const JobOptions& options_;
  const Rank workers_;
  Agenda agenda_;
  ServerNetwork network_;
  std::vector<std::vector<Part>> parts_;  // [variable], in the order of gradients
  std::vector<Worker> states_;            // [worker]
  std::map<std::pair<int64_t, bool>, std::shared_ptr<const schedule::TrafficPlan>> plans_;
  size_t old_ = 0;  // parts that not all workers have sent
  Rank computed_ = 0;
  int step_ = 0;
  int64_t calls_ = 0;
  JobResult result_;
};

}  // namespace

Result<JobResult> run_tensorflow_servers(const Program& program, const JobOptions& options,
                                         const Servers& servers, const Platform& platform) {
  return TensorflowServers(program, options, servers, platform).run();
}

}  // namespace rueda::simulate
