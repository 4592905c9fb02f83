// Calls and work on cores under virtual time, with what is to be done when they end. One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "rueda/schedule/traffic.h"
#include "simulate/agenda.h"
#include "simulate/cluster.h"

namespace rueda::simulate {

// The same with large messages in parts, each after the one before it: what goes to several at once takes
// turns, as connections do.
schedule::Schedule in_parts(const schedule::Schedule& whole);

class ServerNetwork {
 public:
  // host_of: of each process. agenda outlives this object.
  ServerNetwork(const Layout& layout, const Costs& costs, std::vector<int32_t> host_of, Agenda& agenda);
  using Key = schedule::Traffic::CallKey;
  // ended(member) is called for each of the members when its part has ended.
  Key open(std::shared_ptr<const schedule::TrafficPlan> plan, std::vector<Rank> members,
           std::function<void(Rank)> ended);
  void join(Key call, Rank member, Nanos at);
  void work(Rank process, double us, std::function<void()> then);  // on a core of its host
  // Lets happen what happens here and in the agenda. Fails if nothing does any more.
  Status run_until(const std::function<bool()>& is_done);
  [[nodiscard]] schedule::Traffic::Use use() const { return traffic_.use(); }

 private:
  // False: nothing happens any more.
  bool run_next();
  struct Open {
    std::function<void(Rank)> ended;
    int64_t left = 0;
  };
  Agenda& agenda_;
  double reduce_gbps_;
  schedule::Traffic traffic_;
  std::map<Key, Open> open_;
  std::map<int64_t, std::shared_ptr<const schedule::TrafficPlan>> work_;  // by elements
  std::vector<schedule::Traffic::Ended> ended_;
};

}  // namespace rueda::simulate
