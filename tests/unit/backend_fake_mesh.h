// Several ranks in one thread, joined by wires that move when the test says so, in a random order that a seed
// reproduces. There are two kinds of wire. kRendezvous reads the sender's memory while it moves (like mapped
// memory). kBuffered copies at once and completes the send early (like a socket buffer).
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend_queue.h"
#include "rueda/backend/native/native.h"
#include "rueda/transport/transport.h"

namespace rueda::backend_test {

enum class WireKind : uint8_t { kRendezvous, kBuffered };

// One direction between two ranks.
class FakeWire {
 public:
  FakeWire(WireKind kind, std::vector<transport::Completion>& sender,
           std::vector<transport::Completion>& receiver)
      : kind_(kind), sender_(sender), receiver_(receiver) {}

  void send(transport::Ticket ticket, std::span<const std::byte> bytes) {
    sends_.push_back({.ticket = ticket, .bytes = bytes, .copy = {}});
    if (kind_ == WireKind::kRendezvous) return;
    sends_.back().copy.assign(bytes.begin(), bytes.end());
    sender_.push_back({ticket, Status::ok()});
  }
  void recv(transport::Ticket ticket, std::span<std::byte> bytes) {
    receives_.push_back({.ticket = ticket, .size = bytes.size(), .to = bytes.data()});
  }
  void recv_into(transport::Ticket ticket, size_t size, size_t unit_bytes, transport::Consumer& consumer) {
    receives_.push_back({.ticket = ticket, .size = size, .unit_bytes = unit_bytes, .consumer = &consumer});
  }

  size_t withdraw(size_t receives) {
    size_t taken = 0;
    for (; taken < receives && !receives_.empty() && !receives_.back().has_begun; ++taken)
      receives_.pop_back();
    return taken;
  }

  // Moves one piece; false if nothing could move.
  bool move(std::mt19937_64& random) {
    if (sends_.empty() || receives_.empty() || is_cut_) return false;
    Send& from = sends_.front();
    Receive& to = receives_.front();
    EXPECT_EQ(from.bytes.size(), to.size) << "the i-th receive must have the size of the i-th send";
    if (from.bytes.size() != to.size) return false;
    const size_t left = to.size - to.done;
    const size_t units = left / to.unit_bytes;
    const size_t piece = units <= 1 ? left : (1 + random() % units) * to.unit_bytes;
    const std::byte* source = kind_ == WireKind::kBuffered ? from.copy.data() : from.bytes.data();
    if (to.consumer != nullptr && piece != 0)
      to.consumer->consume(to.done, {source + to.done, piece});
    else if (piece != 0)
      std::memcpy(to.to + to.done, source + to.done, piece);
    to.done += piece;
    to.has_begun = true;
    if (to.done < to.size) return true;
    receiver_.push_back({to.ticket, Status::ok()});
    if (kind_ == WireKind::kRendezvous) sender_.push_back({from.ticket, Status::ok()});
    receives_.pop_front();
    sends_.pop_front();
    return true;
  }

  // From now on nothing moves. What was posted fails at once, or waits for fail_open().
  void cut() { is_cut_ = true; }
  void fail_open(const Status& why) {
    cut();
    for (const Send& each : std::exchange(sends_, {}))
      if (kind_ == WireKind::kRendezvous) sender_.push_back({each.ticket, why});
    for (const Receive& each : std::exchange(receives_, {})) receiver_.push_back({each.ticket, why});
  }
  [[nodiscard]] bool is_empty() const { return sends_.empty() && receives_.empty(); }
  [[nodiscard]] size_t posted_receives() const { return receives_.size(); }

 private:
  struct Send {
    transport::Ticket ticket;
    std::span<const std::byte> bytes;
    std::vector<std::byte> copy;
  };
  struct Receive {
    transport::Ticket ticket = 0;
    size_t size = 0;
    size_t unit_bytes = 1;
    std::byte* to = nullptr;
    transport::Consumer* consumer = nullptr;
    size_t done = 0;
    bool has_begun = false;
  };
  WireKind kind_;
  std::vector<transport::Completion>& sender_;
  std::vector<transport::Completion>& receiver_;
  std::deque<Send> sends_;
  std::deque<Receive> receives_;
  bool is_cut_ = false;
};

struct FakeEndpoint final : transport::Endpoint {
  FakeWire* out = nullptr;
  FakeWire* in = nullptr;
  void send(transport::Ticket ticket, std::span<const std::byte> bytes) override { out->send(ticket, bytes); }
  void recv(transport::Ticket ticket, std::span<std::byte> bytes) override { in->recv(ticket, bytes); }
  void recv_into(transport::Ticket ticket, size_t bytes, size_t unit_bytes,
                 transport::Consumer& consumer) override {
    in->recv_into(ticket, bytes, unit_bytes, consumer);
  }
  size_t withdraw(size_t receives) override { return in->withdraw(receives); }
};

using NativeQueue = Queue<backend::NativeBackend>;

class FakeMesh {
 public:
  static constexpr Nanos kPatience = 5 * kSecond;

  FakeMesh(schedule::Topology topology, WireKind kind, uint64_t seed,
           const backend::NativeOptions& options = {})
      : topology_(std::move(topology)),
        size_(topology_.size()),
        random_(seed),
        completions_(size_),
        done_(size_) {
    for (size_t channel = 0; channel < options.channels; ++channel)
      for (Rank from = 0; from < size_; ++from)
        for (Rank to = 0; to < size_; ++to)
          wires_.push_back(std::make_unique<FakeWire>(kind, completions_[from], completions_[to]));
    endpoints_.resize(wires_.size());
    states_.resize(wires_.size(), State::kUp);
    for (size_t channel = 0; channel < options.channels; ++channel)
      for (Rank me = 0; me < size_; ++me)
        for (Rank peer = 0; peer < size_; ++peer) {
          endpoints_[at(me, peer, channel)].out = wires_[at(me, peer, channel)].get();
          endpoints_[at(me, peer, channel)].in = wires_[at(peer, me, channel)].get();
        }
    for (Rank me = 0; me < size_; ++me) {
      backend::Mesh mesh{.endpoint = [this, me](Rank peer, size_t channel) -> transport::Endpoint* {
                           const size_t index = at(me, peer, channel);
                           return states_[index] == State::kUp ? &endpoints_[index] : nullptr;
                         },
                         .connect = [this, me](Rank peer) { return connect(me, peer); },
                         .describe = [](Rank peer) { return "rank " + std::to_string(peer) + " over wires"; },
                         .topology = [this](const Group& group) { return topology_of(group); },
                         .patience = kPatience,
                         .now = [this] { return now; }};
      backends_.emplace_back(std::make_unique<backend::NativeBackend>(std::move(mesh), options));
    }
  }

  [[nodiscard]] Rank size() const { return size_; }
  NativeQueue& backend(Rank rank) { return backends_[static_cast<size_t>(rank)]; }
  FakeWire& wire(Rank from, Rank to) { return *wires_[at(from, to, 0)]; }
  std::vector<backend::Done>& done(Rank rank) { return done_[rank]; }

  // From now on an end of a channel comes up only after its rank has asked for it, at any time.
  void connect_late() { states_.assign(states_.size(), State::kUnasked); }
  // This end of the channel does not come up before let_come().
  void hold(Rank me, Rank peer, size_t channel) { states_[at(me, peer, channel)] = State::kHeld; }
  void let_come(Rank me, Rank peer, size_t channel) { states_[at(me, peer, channel)] = State::kUp; }

  Nanos now = 0;
  Status refusal;    // of all attempts to connect
  int connects = 0;  // how often ranks have asked for a channel

  // The members' view of a group of world ranks.
  [[nodiscard]] Group group(Rank me, std::vector<Rank> members, int32_t id = 0) const {
    Group made{.id = id, .epoch = 1, .members = std::move(members), .me = -1};
    for (Rank i = 0; i < made.size(); ++i)
      if (made.members[i] == me) made.me = i;
    return made;
  }
  [[nodiscard]] Group world(Rank me) const {
    std::vector<Rank> members(size_);
    for (Rank i = 0; i < size_; ++i) members[i] = i;
    return group(me, members);
  }

  // Random events until every backend is idle. False if nothing moves any more before that.
  [[nodiscard]] bool run() {
    constexpr int kMaxSweeps = 1'000'000;
    for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
      if (is_idle()) return true;
      if (!random_events() && !sweep_all()) return is_idle();
    }
    return false;
  }
  // This many random events, or fewer if nothing moves any more.
  void shake(int sweeps) {
    for (int sweep = 0; sweep < sweeps; ++sweep) random_events();
  }
  // Everything that can happen once, in order. False if nothing could.
  bool sweep_all() {
    bool moved = false;
    for (State& state : states_) moved = come_up(state) || moved;
    for (auto& wire : wires_) moved = wire->move(random_) || moved;
    for (Rank rank = 0; rank < size_; ++rank) {
      while (deliver(rank)) moved = true;
      moved = backends_[rank].progress(done_[rank]) || moved;
    }
    return moved;
  }
  // Delivers all waiting completions without moving a wire.
  void deliver_all() {
    for (Rank rank = 0; rank < size_; ++rank)
      while (deliver(rank)) backends_[rank].progress(done_[rank]);
  }
  [[nodiscard]] bool is_idle() const {
    for (const auto& backend : backends_)
      if (!backend.is_idle()) return false;
    for (const auto& waiting : completions_)
      if (!waiting.empty()) return false;
    return true;
  }
  [[nodiscard]] bool are_wires_empty() const {
    for (const auto& wire : wires_)
      if (!wire->is_empty()) return false;
    return true;
  }

 private:
  enum class State : uint8_t { kUnasked, kAsked, kHeld, kUp };
  Status connect(Rank me, Rank peer) {
    ++connects;
    for (size_t channel = 0; channel * size_ * size_ < states_.size(); ++channel)
      if (State& state = states_[at(me, peer, channel)]; state == State::kUnasked) state = State::kAsked;
    return refusal;
  }
  static bool come_up(State& state) {
    if (state != State::kAsked) return false;
    state = State::kUp;
    return true;
  }
  [[nodiscard]] size_t at(Rank me, Rank peer, size_t channel) const {
    return (channel * static_cast<size_t>(size_) + static_cast<size_t>(me)) * static_cast<size_t>(size_) +
           static_cast<size_t>(peer);
  }
  schedule::Topology topology_of(const Group& group) const {
    schedule::Topology part = topology_;
    part.host_of.clear();
    std::vector<int32_t> dense;  // hosts in order of their first member
    for (const Rank member : group.members) {
      const int32_t host = topology_.host_of[member];
      size_t at = 0;
      while (at < dense.size() && dense[at] != host) ++at;
      if (at == dense.size()) dense.push_back(host);
      part.host_of.push_back(static_cast<int32_t>(at));
    }
    return part;
  }
  bool deliver(Rank rank) {
    auto& waiting = completions_[rank];
    if (waiting.empty()) return false;
    const size_t pick = random_() % waiting.size();
    std::swap(waiting[pick], waiting.back());
    const transport::Completion completion = waiting.back();
    waiting.pop_back();
    backends_[rank].backend().on_completion(completion);
    return true;
  }
  bool random_events() {
    bool moved = false;
    for (Rank i = 0; i < size_ * 4; ++i) {
      const auto rank = static_cast<Rank>(random_() % size_);
      moved = come_up(states_[random_() % states_.size()]) || moved;
      switch (random_() % 4) {
        case 0:
          moved = deliver(rank) || moved;
          break;
        case 1:
          moved = backends_[rank].progress(done_[rank]) || moved;
          break;
        default:
          moved = wires_[random_() % wires_.size()]->move(random_) || moved;
          break;
      }
    }
    return moved;
  }

  schedule::Topology topology_;
  Rank size_;
  std::mt19937_64 random_;
  std::vector<std::vector<transport::Completion>> completions_;  // [rank] waiting to be delivered
  std::vector<std::vector<backend::Done>> done_;
  std::vector<std::unique_ptr<FakeWire>> wires_;  // at(from, to, channel)
  std::vector<FakeEndpoint> endpoints_;           // at(me, peer, channel)
  std::vector<State> states_;                     // the same
  std::deque<NativeQueue> backends_;
};

}  // namespace rueda::backend_test
