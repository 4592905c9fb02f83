// Moves bytes between two ranks. This is the interface of shared memory, TCP, UCX (RDMA) and the
// simulator. It knows neither collectives nor groups. Engine thread only, unless a member says
// otherwise. Nothing blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/handshake.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/base/unique_fd.h"

namespace rueda::transport {

using Ticket = uint64_t;  // chosen by the caller, returned once in a Completion

struct Completion {
  Ticket ticket = 0;
  Status status;
};

// Takes arriving bytes piece by piece, in order, directly from where the transport has them: the mapped
// memory of the peer, or a buffer that is still in cache. Offsets and sizes are multiples of the unit that
// the caller asked for.
class Consumer {
 public:
  virtual ~Consumer() = default;
  virtual void consume(size_t offset, std::span<const std::byte> piece) = 0;
};

// What a channel has moved since it is up: what it has sent, as its network stack counts; and what has
// arrived while this end waited for the rest of a message.
struct LinkUse {
  int64_t sent_bytes = 0;  // acknowledged by the other host
  Nanos busy = 0;          // bytes were on their way, and the receiver had room for more
  int64_t pauses = 0;      // how often there was nothing more to send
  int64_t awaited_bytes = 0;
  Nanos awaited = 0;  // a part of a message had come, and nothing more was there to read
};

// One FIFO channel to one peer: the i-th receive here takes the i-th send there. Both must have the same
// size; a difference is a bug, which both sides detect. Buffers are borrowed until the ticket completes. Zero
// bytes are allowed.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  // Empty where nothing counts it, as in shared memory.
  [[nodiscard]] virtual std::optional<LinkUse> use() const { return std::nullopt; }
  // The shortest round trip since the channel is up, as its network stack counts; 0 where nothing counts it.
  // Any thread.
  [[nodiscard]] virtual Nanos round_trip() const { return 0; }
  // For so long the kernel of the peer's host has acknowledged nothing, at a look of the last second; 0: it
  // has. Kernels acknowledge also where processes are stopped. Empty where nothing tells it.
  [[nodiscard]] virtual std::optional<Nanos> host_silence() const { return std::nullopt; }
  virtual void send(Ticket ticket, std::span<const std::byte> bytes) = 0;
  virtual void recv(Ticket ticket, std::span<std::byte> bytes) = 0;
  virtual void recv_into(Ticket ticket, size_t bytes, size_t unit_bytes, Consumer& consumer) = 0;
  // Withdraws up to `receives` of the newest posted receives, which then never complete, and returns how many
  // it has withdrawn. A receive whose message has begun to arrive stays. After the end of the channel none
  // can be withdrawn: all complete with the reason of the end.
  virtual size_t withdraw(size_t receives) = 0;
};

// A channel that ended, and the reason: the peer closed it, died, was cut off or broke the protocol.
struct Loss {
  Rank peer = -1;
  uint16_t channel = 0;
  Status status;
};

struct Identity {
  std::string job;
  Epoch epoch = 0;
  Rank rank = -1;  // world rank
  Rank size = 0;
  Secret secret;
  std::string release;  // version text; must be equal on all ranks
};

// What the ranks of one host give one another: the same on all of them, but for `mine`.
struct HostShare {
  std::vector<Rank> ranks = {};  // ascending, this one among them
  std::vector<size_t> counts =
      {};                      // how many descriptors each of them gives; the lowest rank gives one at least
  std::vector<int> mine = {};  // borrowed until all is shared
  std::string address_of_lowest = {};
};

// How the ranks of one host watch over one another, from when they share memory.
struct HostWatch {
  std::vector<Rank> ranks = {};             // ascending, this one among them
  std::vector<std::string> addresses = {};  // of each, in this transport
  std::vector<int64_t> pids = {};           // of each; empty: they do not see one another's processes
  // One word for each, zero at first, and one more: shared by all, and written only by this transport.
  std::span<uint32_t> ended = {};
  std::shared_ptr<const void> memory = {};  // keeps those words
};

class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;  // "shm", "ucx", "tcp", "sim"

  // What the peers need to reach me. It is published in the store as it is: plain text without spaces, at
  // most 1 KiB.
  [[nodiscard]] virtual std::string address() const = 0;
  // Whether this address can be reached from here (for shm: whether it is on the same host).
  // Decided without I/O.
  [[nodiscard]] virtual bool reaches(std::string_view peer_address) const = 0;

  // Starts connecting; both ranks of a pair call it. The lower rank listens, the higher one dials. Call
  // progress() until endpoint() is not null or take_losses() names the peer.
  virtual Status connect(Rank peer, std::string_view peer_address, uint16_t channel) = 0;
  // Null until the channel is up. It lives until the transport is destroyed.
  virtual Endpoint* endpoint(Rank peer, uint16_t channel) = 0;
  // Why a channel to the peer is not up yet, for the message of whoever gives up. "" if only the peer can
  // know, because it dials.
  [[nodiscard]] virtual std::string trouble_with(Rank /*peer*/) const { return {}; }

  // Moves what can be moved without waiting, and appends completions. Returns whether anything moved.
  virtual bool progress(std::vector<Completion>& done) = 0;
  // The channels lost since the last call. Their open tickets complete with the same
  // Status through progress().
  virtual std::vector<Loss> take_losses() = 0;

  // To sleep until there is work, call prepare_sleep(), poll these descriptors for input, and call
  // progress(). If prepare_sleep() returns false, there is work already and the caller must not sleep. (In
  // shm, prepare_sleep() asks the writers to ring the doorbell.)
  virtual bool prepare_sleep() = 0;
  virtual void wake_fds(std::vector<int>& fds) const = 0;

  // Gives the other ranks of this host the descriptors that this rank shares, and takes theirs, through the
  // lowest of them. All of them call it alike. Call progress() until awaited_shares() is empty: whose part is
  // missing, as far as this rank can know.
  virtual Status share(HostShare /*host*/) {
    return {Code::kUnsupported, std::string(name()) + " passes no descriptors."};
  }
  [[nodiscard]] virtual std::vector<Rank> awaited_shares() const { return {}; }
  // What that rank has given; each descriptor is returned once.
  virtual std::vector<UniqueFd> take_shared(Rank /*peer*/) { return {}; }
  // To be called once all is shared: channels between ranks of this host need no descriptor from then on.
  virtual void watch_over(HostWatch /*host*/) {}
  // Wakes that rank of this host, if it sleeps; after watch_over().
  virtual void ring(Rank /*peer*/) {}
  // Whether arriving data makes an event only for a rank that has announced its sleep with prepare_sleep().
  [[nodiscard]] virtual bool is_silent() const { return false; }

  // Ends every channel now: the peers see a loss, and open tickets complete with `why`.
  virtual void abort(const Status& why) = 0;
};

}  // namespace rueda::transport
