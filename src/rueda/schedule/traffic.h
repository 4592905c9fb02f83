// Virtual time for calls that run at once on one network: each rank joins a call when it starts it, and ends
// it when the last step of its schedule is complete. The rules: a rank sends one message at a time, and does
// one thing at a time on its core; so does the port of a host to other hosts, which its ranks share. What the
// port of the receiver cannot take at that moment waits on the way, and so does what the uplink of a switch
// cannot take (uplinks.h); a port slows down if many hosts send to it. Hosts may share the cores of one
// machine. Messages that arrive early are buffered. Pure and deterministic: no I/O, no clock, no threads.
//
// Example: two ranks on two hosts, links of 1 GB/s and 10 us. Both join a call at 0 whose only steps are a
// message of 1 MB from rank 0 to rank 1. next_us() is 0. Rank 0 ends the call at 1000 us, rank 1 at 1010 us.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "rueda/schedule/network.h"
#include "rueda/schedule/token_bucket.h"
#include "rueda/schedule/traffic_plan.h"
#include "rueda/schedule/uplinks.h"

namespace rueda::schedule {

// What messages between hosts cost the core of either end, besides their bytes on the link, and who shares
// cores. By default they cost nothing, and every rank has a core.
struct CoreCosts {
  double message_us = 0;            // to send a message, and to receive one
  double byte_ns = 0;               // … and for each byte of it
  std::vector<int32_t> machine_of;  // [hosts] hosts of one machine share its cores; empty: nobody shares
  std::vector<int32_t> cores;       // [machines]
};

class Traffic {
 public:
  // host_of: [ranks of the world]. network: of the hosts.
  Traffic(Network network, std::vector<int32_t> host_of, double reduce_gbps, CoreCosts costs = {});

  using CallKey = uint64_t;
  // A call that members (world ranks) will join. It has left when all of them have ended it.
  CallKey open(std::shared_ptr<const TrafficPlan> plan, std::vector<Rank> members);
  void join(CallKey call, Rank member, double at_us);  // member: index
  // No member ends it any more. What it has sent has been sent.
  void abandon(CallKey call);
  struct Ended {
    CallKey call = 0;
    Rank member = 0;
    double at_us = 0;
  };
  // When something happens next; infinite if nothing does.
  [[nodiscard]] double next_us() const {
    return events_.empty() ? std::numeric_limits<double>::infinity() : events_.top().at;
  }
  // Lets it happen, and appends the members that end a call with it.
  void advance(std::vector<Ended>& ended);

  // How long each has been busy, in microseconds: the ports of hosts to other hosts, sending and receiving,
  // the cores of machines (all cores together) or, where nobody shares cores, of ranks, and the uplinks of
  // switches.
  struct Use {
    std::vector<double> port_out, port_in, cores, uplinks;
  };
  [[nodiscard]] Use use() const {
    Use use = use_;
    use.uplinks = uplinks_.busy_us();
    return use;
  }

 private:
  struct ChannelState {
    size_t sends_posted = 0, recvs_posted = 0, met = 0;
    std::vector<double> arrivals;  // of the messages that were sent
    double last_ready = 0;         // messages of a channel keep their order
    double sent = 0;               // bytes, from where it began to take turns
  };
  struct StepState {
    int32_t waits_for = 0;
    double ready = 0;  // when all of `after` was complete
  };
  struct Call {
    std::shared_ptr<const TrafficPlan> plan;
    std::vector<Rank> members;
    std::vector<std::vector<StepState>> steps;  // [member][step]
    std::vector<ChannelState> channels;
    std::vector<int64_t> open;  // [member] steps that are not complete; -1: it has not joined
    std::vector<double> done;   // [member] when the last one was
    Rank ended = 0;
    int64_t events = 0;  // that are to come
    bool is_abandoned = false;
  };
  enum class What : uint8_t { kJoin, kSend, kTransfer, kLand, kArrive, kLocal, kFree };
  struct Event {
    double at = 0;
    int64_t order = 0;  // breaks ties the same way every time
    CallKey call = 0;
    int32_t channel = -1;  // kSend, kTransfer, kLand, kArrive
    Rank member = 0;
    int32_t index = 0;  // of the message in its channel, or of the step; kFree: of the sender
    What what = What::kLocal;
    bool is_on_way = false;  // a message that is counted in on_way_
    double turn = 0;         // of a message: in bytes that a channel has sent
    double through = 0;      // … when its last byte is through link and switches
    [[nodiscard]] std::pair<int64_t, int64_t> place_in_line() const {
      constexpr double kTurnBytes = 1 << 20;  // what a connection has under way before others come first
      return {static_cast<int64_t>(turn / kTurnBytes), order};
    }
    bool operator>(const Event& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };

  // A rank, or the port of a host to other hosts: it sends one message at a time.
  struct Sender {
    double free = 0;             // when
    std::vector<Event> waiting;  // a heap: the first in line first
    double turn = 0;             // of the message that was sent last
    bool is_woken = false;       // an event is under way that looks at what waits
  };

  [[nodiscard]] Call& find(CallKey call) { return calls_[call - first_call_]; }
  void happen(const Event& event);
  void drop_ended();
  void push(Call& call, const Event& event);
  void begin(Call& call, const Event& event);
  void make_ready(Call& call, CallKey key, Rank member, int32_t step);
  void take_arrivals(Call& call, CallKey key, int32_t channel);
  void send(Call& call, const Event& event);
  void transfer(Call& call, Event event);
  void land(Call& call, const Event& event);
  void wait_for(Sender& sender, int32_t number, const Event& event);
  void wake(Sender& sender, int32_t number);
  void look_at_waiting(int32_t number, double now);
  void arrive(Call& call, const Event& event);
  void compute(Call& call, const Event& event);
  void complete(Call& call, CallKey key, Rank member, int32_t step, double at);
  void end(Call& call, CallKey key, Rank member);
  double work(Rank rank, double at, double us);
  [[nodiscard]] size_t pair_of(int32_t from_host, int32_t to_host) const {
    return static_cast<size_t>(to_host) * senders_.size() + static_cast<size_t>(from_host);
  }
  [[nodiscard]] double end_us(double bytes) const { return costs_.message_us + costs_.byte_ns * bytes / 1e3; }

  Network network_;
  std::vector<int32_t> host_of_;
  double reduce_gbps_;
  CoreCosts costs_;
  std::vector<Sender> senders_out_;             // the ranks, then the ports of hosts
  std::vector<double> in_free_, port_in_free_;  // when a rank, and the port of a host, can receive again
  std::vector<TokenBucket> out_, in_;           // [host] what its port lets through
  std::vector<double> link_free_;               // [pair_of()]
  std::vector<int32_t> on_way_;                 // [pair_of()] messages that are ready to go, or under way
  std::vector<int32_t> senders_;                // [host] other hosts that have some for it
  std::vector<double> bytes_to_;                // [host] of messages that are ready to go, or under way
  std::vector<double> core_;                    // [ranks] when its core is free
  std::vector<std::vector<double>> cores_;      // [machine] when each core is
  std::deque<Call> calls_;                      // from first_call_ on
  CallKey first_call_ = 1;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Ended>* ended_ = nullptr;  // while advance() runs
  int64_t next_order_ = 0;
  Uplinks uplinks_;
  Use use_;  // without uplinks
};

// Runs a call of the ranks 0, 1, …, or several alike at once, in traffic that is new; starts_us: [ranks].
// Returns who ends a call and when: fewer than all if the schedules deadlock.
std::vector<Traffic::Ended> run_alone(Traffic& traffic, const std::shared_ptr<const TrafficPlan>& plan,
                                      std::span<const double> starts_us, size_t calls = 1);

}  // namespace rueda::schedule
