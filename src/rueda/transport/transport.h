// Moves bytes between two ranks. The interface for shared memory, TCP, the simulator and later RDMA; nothing
// here knows collectives or groups. Engine thread only, unless a member says otherwise. Nothing blocks.
#pragma once

#include <cstddef>
#include <memory>
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

// Takes arriving bytes piece by piece, in order, straight from wherever the transport holds them (mapped
// memory of the peer, a receive chunk hot in cache). Offsets and sizes are multiples of the granule the
// caller asked for.
class Consumer {
 public:
  virtual ~Consumer() = default;
  virtual void consume(size_t offset, std::span<const std::byte> piece) = 0;
};

// One FIFO channel to one peer: the i-th receive here meets the i-th send there, and both name the same size
// (a difference is a bug that both sides detect). Buffers are borrowed until the ticket completes. Zero bytes
// are legal.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void send(Ticket ticket, std::span<const std::byte> bytes) = 0;
  virtual void recv(Ticket ticket, std::span<std::byte> bytes) = 0;
  virtual void recv_into(Ticket ticket, size_t bytes, size_t granule, Consumer& consumer) = 0;
  // Takes back up to so many of the newest receives: they do not complete. Not one whose message has begun to
  // arrive, and none once the channel has ended, for then they complete with its reason. How many it took
  // back.
  virtual size_t withdraw(size_t receives) = 0;
};

// A channel that ended, with the reason: the peer closed, died, was cut off, broke the protocol.
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
  std::string release;  // version text, must be equal on all ranks
};

class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;  // "shm", "tcp", "sim"

  // What the peers need to reach me: published in the store as is. Plain text without spaces, ≤ 1 KiB.
  [[nodiscard]] virtual std::string address() const = 0;
  // Could this address be reached from here (same host for shm)? Decided without I/O.
  [[nodiscard]] virtual bool reaches(std::string_view peer_address) const = 0;

  // Starts connecting; both ranks of a pair call it. The lower rank listens, the higher one dials. Progress
  // with progress() until endpoint() is non-null or losses() names the peer.
  virtual Status connect(Rank peer, std::string_view peer_address, uint16_t channel) = 0;
  // Null until the channel is up. Lives until the transport is destroyed.
  virtual Endpoint* endpoint(Rank peer, uint16_t channel) = 0;

  // Moves what can be moved without waiting; appends completions. True if anything moved.
  virtual bool progress(std::vector<Completion>& done) = 0;
  // Channels lost since the last call. Their open tickets complete with the same Status through progress().
  virtual std::vector<Loss> take_losses() = 0;

  // To sleep until there is work: prepare_sleep(), then poll these descriptors for input, then progress().
  // When prepare_sleep returns false there is work already: do not sleep. (shm tells its writers to ring the
  // doorbell here.)
  virtual bool prepare_sleep() = 0;
  virtual void wake_fds(std::vector<int>& fds) const = 0;

  // Descriptors that the peer gave with channel 0, once; none before that channel is up, and from a transport
  // that passes none.
  virtual std::vector<UniqueFd> take_shared(Rank) { return {}; }
  // Whether arriving data makes an event only for a rank that has announced its sleep with prepare_sleep().
  [[nodiscard]] virtual bool is_silent() const { return false; }

  // Ends every channel now: peers see a loss, open tickets complete with why.
  virtual void abort(const Status& why) = 0;
};

}  // namespace rueda::transport
