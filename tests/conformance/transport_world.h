// A few ranks in one thread, over any transport, for the conformance suite.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/transport/shm/shm.h"
#include "rueda/transport/sim/sim.h"
#include "rueda/transport/tcp/tcp.h"
#include "rueda/transport/ucx/ucx.h"
#include "ucx_here.h"

namespace rueda::transport::testing {

inline Identity identity_of(Rank rank, Rank size) {
  return {.job = "conformance",
          .epoch = 7,
          .rank = rank,
          .size = size,
          .secret = Secret{Bytes(32, std::byte{42})},
          .release = "0.1.0"};
}

// "ucx_tcp" and "ucx_sm": UCX over TCP on the loopback interface, and over shared memory.
inline bool is_ucx(const std::string& kind) { return kind.starts_with("ucx"); }

// Why a transport cannot be tested here; "" = it can. For ucx, also chooses what UCX uses.
inline std::string why_skipped(const std::string& kind) {
  if (!is_ucx(kind)) return "";
  using rueda::ucx_test::UcxOver;
  return rueda::ucx_test::why_no_ucx(kind == "ucx_tcp" ? UcxOver::kTcp : UcxOver::kSharedMemory);
}

inline Result<std::unique_ptr<Transport>> try_transport(const std::string& kind, Identity identity) {
  if (is_ucx(kind)) return make_ucx({.identity = std::move(identity)});
  if (kind == "shm") return make_shm({.identity = std::move(identity), .ring_bytes = 64 << 10});
  return make_tcp({.identity = std::move(identity)});
}

inline std::unique_ptr<Transport> make_transport(const std::string& kind, Identity identity,
                                                 SimNetwork* network) {
  if (kind.starts_with("sim")) return network->make(identity.rank);
  return try_transport(kind, std::move(identity)).value();
}

class World {
 public:
  World(const std::string& kind, Rank size, uint64_t seed = 1)
      : network_({.size = size, .seed = seed, .is_rendezvous = kind == "sim_rendezvous"}) {
    for (Rank rank = 0; rank < size; ++rank) {
      ranks_.push_back(make_transport(kind, identity_of(rank, size), &network_));
      done_.emplace_back();
    }
  }

  [[nodiscard]] Rank size() const { return static_cast<Rank>(ranks_.size()); }
  Transport& at(Rank rank) { return *ranks_[static_cast<size_t>(rank)]; }
  SimNetwork& network() { return network_; }
  Endpoint& end(Rank rank, Rank peer, uint16_t channel = 0) { return *at(rank).endpoint(peer, channel); }
  void kill(Rank rank) { ranks_[static_cast<size_t>(rank)].reset(); }
  [[nodiscard]] bool is_alive(Rank rank) const { return ranks_[static_cast<size_t>(rank)] != nullptr; }
  std::vector<Loss>& losses(Rank rank) { return losses_[rank]; }

  void connect_all(uint16_t channels = 1) {
    for (Rank a = 0; a < size(); ++a) {
      for (Rank b = 0; b < size(); ++b) {
        for (uint16_t channel = 0; a != b && channel < channels; ++channel)
          ASSERT_TRUE(at(a).connect(b, at(b).address(), channel).is_ok());
      }
    }
    ASSERT_TRUE(pump_until([&] { return are_connected(channels); })) << "channels did not come up";
  }

  bool are_connected(uint16_t channels) {
    for (Rank a = 0; a < size(); ++a) {
      for (Rank b = 0; b < size(); ++b) {
        for (uint16_t channel = 0; a != b && channel < channels; ++channel) {
          if (at(a).endpoint(b, channel) == nullptr) return false;
        }
      }
    }
    return true;
  }

  // One progress() of every living rank. Sleeps briefly if nothing moved and all agree that there is
  // nothing to do.
  void pump() {
    bool is_moved = false;
    for (Rank rank = 0; rank < size(); ++rank) {
      if (!is_alive(rank)) continue;
      std::vector<Completion> done;
      is_moved |= at(rank).progress(done);
      for (const Completion& completion : done) {
        auto [it, is_new] = done_[static_cast<size_t>(rank)].emplace(completion.ticket, completion.status);
        EXPECT_TRUE(is_new) << "ticket " << completion.ticket << " completed twice";
      }
      for (Loss& loss : at(rank).take_losses()) losses_[rank].push_back(std::move(loss));
    }
    if (is_moved) return;
    std::vector<int> fds;
    for (Rank rank = 0; rank < size(); ++rank) {
      if (!is_alive(rank)) continue;
      if (!at(rank).prepare_sleep()) return;
      at(rank).wake_fds(fds);
    }
    std::vector<pollfd> polled;
    for (const int fd : fds) polled.push_back({fd, POLLIN, 0});
    ::poll(polled.data(), polled.size(), 5);
  }

  bool pump_until(const std::function<bool()>& condition, Nanos limit = 30 * kSecond) {
    const Deadline deadline = Deadline::after(limit);
    while (!condition()) {
      if (deadline.is_past()) return false;
      pump();
    }
    return true;
  }

  [[nodiscard]] bool is_done(Rank rank, Ticket ticket) const {
    return done_[static_cast<size_t>(rank)].contains(ticket);
  }
  Status status_of(Rank rank, Ticket ticket) { return done_[static_cast<size_t>(rank)].at(ticket); }

 private:
  SimNetwork network_;
  std::vector<std::unique_ptr<Transport>> ranks_;
  std::vector<std::map<Ticket, Status>> done_;
  std::map<Rank, std::vector<Loss>> losses_;
};

// Bytes that differ at every place and from message to message.
inline Bytes pattern(size_t size, uint64_t seed) {
  Bytes bytes(size);
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = 0; i < size; ++i) {
    if (i % 8 == 0) state = state * 6364136223846793005ull + 1442695040888963407ull;
    bytes[i] = static_cast<std::byte>(state >> (8 * (i % 8)));
  }
  return bytes;
}

// Checks order, coverage and granularity of what a transport delivers.
class Collector final : public Consumer {
 public:
  Collector(size_t bytes, size_t unit_bytes) : bytes_(bytes), unit_bytes_(unit_bytes) {}
  void consume(size_t offset, std::span<const std::byte> piece) override {
    EXPECT_EQ(offset, seen.size()) << "pieces come in order, each once";
    EXPECT_EQ(offset % unit_bytes_, 0u);
    EXPECT_EQ(piece.size() % unit_bytes_, 0u);
    EXPECT_GT(piece.size(), 0u);
    EXPECT_LE(offset + piece.size(), bytes_);
    seen.insert(seen.end(), piece.begin(), piece.end());
  }
  Bytes seen;

 private:
  size_t bytes_, unit_bytes_;
};

}  // namespace rueda::transport::testing
