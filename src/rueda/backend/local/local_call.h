// The running call of the local backend as its algorithms see it: its tensors, the other members, and how far
// each member says that it has come. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/local/host.h"
#include "rueda/backend/segments.h"

namespace rueda::backend {

struct LocalPeer {
  size_t index = 0;  // on the host
  Rank member = 0;   // in the group
  uint64_t sequence = 0;
};

struct LocalCall {
  LocalHost* host = nullptr;
  Call call;
  SegmentList segments;
  std::vector<LocalPeer> peers;  // the members that I meet; all others in rank order, unless it is gathered
  size_t element = 0;            // bytes
  bool must_load = false;        // my contribution differs from my input, or I have no input
  size_t parity = 0;             // of my one-shot buffer and table

  void assign(const Call& next);  // with no peers yet
  // Adds these members, with the next sequence of each.
  void meet(std::span<const Rank> members);
  void meet_all();
  [[nodiscard]] bool has_arrived(const LocalPeer& peer) const;
  [[nodiscard]] Rank me() const { return call.group->me; }
  [[nodiscard]] size_t ranks() const { return call.group->members.size(); }
  [[nodiscard]] const Post& post_of(const LocalPeer& peer) const {
    return host->mailbox_of(peer.index).posts[peer.sequence % 2];
  }
  [[nodiscard]] bool has_reached(const LocalPeer& peer, uint64_t Progress::*field, uint64_t chunks) const {
    return load_shared(host->mailbox_of(peer.index).progress.*field) >= progress_of(peer.sequence, chunks);
  }
  void tell(const LocalPeer& peer, uint64_t Progress::*field, uint64_t chunks) const;
  void tell_all(uint64_t Progress::*field, uint64_t chunks) const;
  void leave() const;  // I have stopped reading the memory of the others
  // One of the others that may still read my memory; none if all have stopped.
  [[nodiscard]] const LocalPeer* one_inside() const;
  // Whether my inputs lie in my arena, and with_outputs my outputs as well. Shows the others where, if so.
  bool show_addresses(bool with_outputs) const;
  [[nodiscard]] std::byte* output_of(size_t segment, size_t element_at) const;
  [[nodiscard]] const std::byte* input_of(size_t segment, size_t element_at) const;
};

// The peers that may still read a shared buffer of this rank.
class BufferUsers {
 public:
  [[nodiscard]] bool are_done(const LocalHost& host) const { return !one_left(host); }
  [[nodiscard]] std::optional<size_t> one_left(const LocalHost& host) const;  // index on the host
  void note(const LocalCall& call);
  void clear() { users_.clear(); }

 private:
  struct User {
    size_t index = 0;
    uint64_t sequence = 0;
  };
  std::vector<User> users_;
};

// What an algorithm has come to.
enum class LocalTurn : uint8_t {
  kWaits,       // for another rank
  kMoved,       // did a bounded amount of work
  kOver,        // the call has ended here; my shared buffers may still be read
  kOthersRead,  // my part is done, but others may still use my tensors
  kFailed,      // a rank published addresses outside its memory
};

// What runs in shared memory for one kind of collective. In this order: begin(), prepare() when the shared
// buffers are free, choose() when all members have announced the call, advance() until the call is over.
class LocalWork {
 public:
  virtual ~LocalWork() = default;
  virtual void begin(const LocalCall& call) = 0;       // the call is borrowed until it is over
  [[nodiscard]] virtual size_t bytes() const = 0;      // equal on all members
  [[nodiscard]] virtual bool is_inline() const = 0;    // the posts carry everything; equal on all members
  virtual void prepare() = 0;                          // reads my tensors: fills my buffer or my table
  [[nodiscard]] virtual bool shows_table() const = 0;  // others may use my tensors where they are
  virtual void write_payload(const LocalPeer& peer, std::byte* payload) const = 0;  // kInlineBytes
  virtual std::string_view choose() = 0;  // the name of the algorithm; writes to no tensor
  virtual LocalTurn advance() = 0;
};

}  // namespace rueda::backend
