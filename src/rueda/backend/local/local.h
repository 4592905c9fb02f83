// Allreduce and barrier among ranks of one host, through memory that all of them map. Engine thread only.
//
// How a call runs: every member announces the call to the others in a post (control_block.h). Nothing is
// written to any tensor before all members have announced it. Then one of four algorithms runs. The size and
// the place of the tensors decide which one, and all ranks make the same decision:
//   inline      Up to 96 bytes: the values travel in the posts.
//   one_shot    Each rank copies its input into its one-shot buffer, and then reduces all one-shot buffers
//   into its output.
//               One synchronisation; each rank reads (n - 1) * S bytes from the others.
//   registered  All tensors of all ranks lie in arenas. Each rank reduces its slice of all inputs and writes
//               the result into all outputs. Every input is read once and every output is written once.
//   staged      Chunks pass through small rings that stay in cache: each rank contributes its input, reduces
//               its slice and takes the results of the others.
// Every algorithm adds in rank order, in the accumulator type, and rounds once (reduce_sources). The bits of
// a result therefore depend neither on fusion nor on the place of the tensors.
//
// Example: 4 ranks, float32, and memory with a latency of 1 us, in which a rank copies 8 GB/s and adds 6 GB/s
// (cost.h).
//   24 elements are 96 bytes: inline, 1.4 us.
//   16,384 elements are 64 KiB: one_shot. 1.4 us for the synchronisation, 8.2 us to copy 64 KiB, and 32.8 us
//   to add 3 * 64 KiB: 42.4 us. One element more is staged, or registered.
//   1,048,576 elements are 4 MiB. Staged: 32 chunks of 128 KiB, of each of which every rank adds 32 KiB;
//   1,371 us. Registered: every rank adds 1 MiB (262,144 elements) where it lies; 920 us.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/local/host.h"
#include "rueda/backend/segments.h"

namespace rueda::backend {

class LocalBackend final : public Backend, public Cancellation {
 public:
  explicit LocalBackend(std::shared_ptr<LocalHost> host) : host_(std::move(host)) {}

  [[nodiscard]] std::string_view name() const override { return "local"; }
  [[nodiscard]] bool accepts(const Group& group, const schedule::Spec& spec,
                             const Memory& memory) const override;
  [[nodiscard]] Cancellation* cancellation() override { return this; }
  [[nodiscard]] bool has_room(uint64_t) const override { return is_idle(); }
  void start(const Call& call) override;
  bool progress(std::vector<Done>& done) override;
  [[nodiscard]] bool is_idle() const override { return state_ == CallState::kIdle && finished_.empty(); }
  [[nodiscard]] bool waits_on_memory() const override { return state_ != CallState::kIdle; }
  bool prepare_sleep() override;
  void wake_up() override;
  void cancel(CallId call, std::span<const int32_t> arrivals) override;
  void discard(const Call& call, std::span<const int32_t> arrivals) override;
  void abort(const Status& why) override;

 private:
  enum class CallState : uint8_t {
    kIdle,
    kWaitingForBuffer,
    kPosted,
    kCopied,
    kStaged,
    kRegistered,
    kLeaving
  };
  struct Peer {
    size_t index = 0;  // on the host
    Rank member = 0;   // in the group
    uint64_t sequence = 0;
  };
  struct User {  // a peer that may still read a one-shot buffer, a table or the stages
    size_t index = 0;
    uint64_t sequence = 0;
  };

  bool advance();  // does a bounded amount of work; false if there was nothing to do
  bool post();
  bool choose_algorithm();
  void reduce_posts();
  bool reduce_slots();
  bool run_stages();
  bool contribute();
  bool reduce_chunk();
  bool take_chunk();
  bool reduce_registered();
  void leave();
  void end(const Status& status);

  [[nodiscard]] bool have_arrived() const;
  [[nodiscard]] bool is_free(const std::vector<User>& users) const;
  [[nodiscard]] bool is_registered() const;
  [[nodiscard]] const Post& post_of(const Peer& peer) const;
  [[nodiscard]] bool has_finished(const User& user) const;
  void show_table();
  void load_range(size_t begin, size_t end, std::byte* to) const;
  [[nodiscard]] size_t slice_begin(size_t count, Rank member) const;
  void publish(uint64_t Progress::*field, uint64_t chunks);
  void note_users(std::vector<User>& users) const;

  std::shared_ptr<LocalHost> host_;
  std::vector<Done> finished_;
  Status broken_;

  // The running call.
  CallState state_ = CallState::kIdle;
  std::string_view how_ = "";  // one of the four names above
  Call call_;
  SegmentList segments_;
  std::vector<Peer> peers_;  // the other members, in rank order
  size_t element_ = 0;       // bytes
  size_t bytes_ = 0;
  bool must_load_ = false;  // my contribution differs from my input, or I have no input
  bool shows_registered_ = false;
  size_t chunk_elements_ = 0;
  uint64_t chunks_ = 0, contributed_ = 0, reduced_ = 0, taken_ = 0;
  size_t reduced_to_ = 0;  // registered: how many elements of my slice are done

  uint64_t calls_ = 0;  // calls of this backend so far; its parity chooses one-shot buffer and table
  std::vector<User> one_shot_users_[2], stage_users_;
  std::vector<const void*> sources_;
};

}  // namespace rueda::backend
