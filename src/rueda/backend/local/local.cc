#include "rueda/backend/local/local.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rueda/backend/local/cost.h"
#include "rueda/base/check.h"
#include "rueda/kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rueda::backend {
namespace {

// One look costs 0.13 us. If the peer shares this core, looking more than about twenty times only takes time
// from it, so the caller yields then.
constexpr int kLooks = 20;
constexpr int kSteps = 16;  // of 10 to 200 us each

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

constexpr uint64_t arrival(uint64_t sequence, uint16_t generation = 0) { return sequence << 16 | generation; }

}  // namespace

bool LocalBackend::accepts(const Group& group, const schedule::Spec& spec, const Memory& memory) const {
  const bool is_mine = (spec.what == Collective::kAllreduce && spec.op != ReduceOp::kAdasum) ||
                       spec.what == Collective::kBarrier;
  return is_mine && memory.kind != MemoryKind::kDevice && group.size() > 1 &&
         std::ranges::all_of(group.members, [&](Rank r) { return host_->index_of(r) >= 0; });
}

bool LocalBackend::progress(std::vector<Done>& done) {
  bool moved = !finished_.empty();
  // Bounded, because the owner of this thread must look after its other transports.
  for (int looks = 0, steps = 0; state_ != CallState::kIdle && looks < kLooks && steps < kSteps;) {
    if (advance()) {
      moved = true;
      ++steps;
      looks = 0;
    } else {
      relax();
      ++looks;
    }
  }
  for (Done& each : finished_) done.push_back(std::move(each));
  finished_.clear();
  return moved;
}

void LocalBackend::start(const Call& call) {
  RUEDA_CHECK(call.group != nullptr && call.group->is_member(), "a call needs a group that I belong to");
  RUEDA_CHECK(is_idle(), "calls run one after the other");
  call_ = call;
  how_ = "";
  if (!broken_.is_ok()) return end(broken_);
  const Group& group = *call_.group;
  segments_.assign(call_.segments);
  element_ = size_of(call_.spec.dtype);
  bytes_ = segments_.count() * element_;
  must_load_ = call_.prescale != 1.0 || std::ranges::any_of(segments_.segments(), [](const Segment& s) {
                 return s.input == nullptr && s.count > 0;
               });
  peers_.clear();
  for (Rank member = 0; member < group.size(); ++member) {
    if (member == group.me) continue;
    peers_.push_back(
        {.index = static_cast<size_t>(host_->index_of(group.members[member])), .member = member});
  }
  for (Peer& peer : peers_) peer.sequence = host_->next_sequence(peer.index);
  ++calls_;
  call_.note(Activity::kTransfer);
  state_ = CallState::kWaitingForBuffer;
}

bool LocalBackend::advance() {
  switch (state_) {
    case CallState::kIdle:
      return false;
    case CallState::kWaitingForBuffer:
      return post();
    case CallState::kPosted:
      return have_arrived() && choose_algorithm();
    case CallState::kCopied:
      return reduce_slots();
    case CallState::kStaged:
      return run_stages();
    case CallState::kRegistered:
      return reduce_registered();
    case CallState::kLeaving: {
      for (const Peer& peer : peers_)
        if (!has_finished({.index = peer.index, .sequence = peer.sequence})) return false;
      end(Status::ok());
      return true;
    }
  }
  return false;
}

bool LocalBackend::post() {
  const size_t parity = calls_ % 2;
  if (bytes_ > kInlineBytes && !is_free(one_shot_users_[parity])) return false;
  shows_registered_ = bytes_ >= kRegisteredFromBytes && !must_load_ && is_registered();
  alignas(64) std::byte payload[kInlineBytes];
  if (bytes_ <= kInlineBytes) {
    load_range(0, segments_.count(), payload);
  } else {
    if (shows_registered_)
      show_table();
    else if (bytes_ <= one_shot_limit_bytes(peers_.size() + 1))
      load_range(0, segments_.count(), host_->my_control_block().one_shot[parity]);
    note_users(one_shot_users_[parity]);
  }
  for (const Peer& peer : peers_) {
    Post& post = host_->my_mailbox(peer.index).posts[peer.sequence % 2];
    post.is_registered = shows_registered_ ? 1 : 0;
    post.parity = static_cast<uint32_t>(parity);
    post.bytes = bytes_;
    if (bytes_ <= kInlineBytes) std::memcpy(post.payload, payload, bytes_);
    store_shared(post.arrived, arrival(peer.sequence, call_.generation));
    host_->ring(peer.index);
  }
  state_ = CallState::kPosted;
  return true;
}

// All members have announced the call, so all of them choose from the same values.
bool LocalBackend::choose_algorithm() {
  for (const Peer& peer : peers_) {
    const Post& post = post_of(peer);
    if (post.bytes == bytes_ && post.parity < 2) continue;
    end({Code::kInternal, "rank " + std::to_string(host_->rank(peer.index).world_rank) + " announced " +
                              std::to_string(post.bytes) + " bytes where this rank has " +
                              std::to_string(bytes_) + "; please report it."});
    return true;
  }
  if (bytes_ <= kInlineBytes) {
    how_ = "inline";
    reduce_posts();
    end(Status::ok());
    return true;
  }
  const bool all_registered = shows_registered_ && std::ranges::all_of(peers_, [&](const Peer& peer) {
                                return post_of(peer).is_registered != 0;
                              });
  if (all_registered) {
    how_ = "registered";
    reduced_to_ = 0;
    state_ = CallState::kRegistered;
    return true;
  }
  if (bytes_ <= one_shot_limit_bytes(peers_.size() + 1)) {
    if (shows_registered_) {  // another rank's tensors are not, so mine go through the one-shot buffer, too
      load_range(0, segments_.count(), host_->my_control_block().one_shot[calls_ % 2]);
      publish(&Progress::staged, 1);
    }
    how_ = "one_shot";
    state_ = CallState::kCopied;
    return true;
  }
  how_ = "staged";
  chunk_elements_ = kChunkBytes / element_;
  chunks_ = (segments_.count() + chunk_elements_ - 1) / chunk_elements_;
  contributed_ = reduced_ = taken_ = 0;
  state_ = CallState::kStaged;
  return true;
}

// A post with the same sequence but another generation announces a cancelled call of the peer, which will use
// that sequence again.
bool LocalBackend::have_arrived() const {
  return std::ranges::all_of(peers_, [&](const Peer& peer) {
    return load_shared(post_of(peer).arrived) == arrival(peer.sequence, call_.generation);
  });
}

const Post& LocalBackend::post_of(const Peer& peer) const {
  return host_->mailbox_of(peer.index).posts[peer.sequence % 2];
}

// A peer that has announced a later call is done with this one, because it ends one call before it
// starts the next.
bool LocalBackend::has_finished(const User& user) const {
  const Mailbox& mailbox = host_->mailbox_of(user.index);
  return load_shared(mailbox.progress.finished) >= user.sequence ||
         std::max(load_shared(mailbox.posts[0].arrived), load_shared(mailbox.posts[1].arrived)) >=
             arrival(user.sequence + 1);
}

bool LocalBackend::is_free(const std::vector<User>& users) const {
  return std::ranges::all_of(users, [&](const User& user) { return has_finished(user); });
}

void LocalBackend::note_users(std::vector<User>& users) const {
  users.clear();
  for (const Peer& peer : peers_) users.push_back({.index = peer.index, .sequence = peer.sequence});
}

bool LocalBackend::is_registered() const {
  const memory::SharedMemory* arena = host_->rank(host_->me()).arena;
  if (arena == nullptr || segments_.segments().size() > kMaxRegisteredSegments) return false;
  return std::ranges::all_of(segments_.segments(), [&](const Segment& segment) {
    const size_t bytes = static_cast<size_t>(segment.count) * element_;
    return bytes == 0 || (arena->holds(segment.input, bytes) && arena->holds(segment.output, bytes));
  });
}

void LocalBackend::show_table() {
  SegmentAddress* table = host_->my_control_block().tables[calls_ % 2];
  const memory::SharedMemory& arena = *host_->rank(host_->me()).arena;
  for (const Segment& segment : segments_.segments()) {
    *table++ = segment.count == 0 ? SegmentAddress{}
                                  : SegmentAddress{.input = arena.offset_of(segment.input),
                                                   .output = arena.offset_of(segment.output)};
  }
}

// Writes my contribution to [begin, end): prescaled, or identity elements if this rank has no input.
void LocalBackend::load_range(size_t begin, size_t end, std::byte* to) const {
  segments_.for_range(begin, end, [&](size_t index, size_t within, size_t at, size_t size) {
    load(call_.spec, call_.prescale, segments_.segments()[index], within, size, to + (at - begin) * element_);
  });
}

void LocalBackend::publish(uint64_t Progress::*field, uint64_t chunks) {
  for (const Peer& peer : peers_) {
    store_shared(host_->my_mailbox(peer.index).progress.*field, progress_of(peer.sequence, chunks));
    host_->ring(peer.index);
  }
}

void LocalBackend::leave() {
  for (const Peer& peer : peers_) {
    store_shared(host_->my_mailbox(peer.index).progress.finished, peer.sequence);
    host_->ring(peer.index);
  }
}

void LocalBackend::end(const Status& status) {
  if (!status.is_ok() && broken_.is_ok()) broken_ = status;
  state_ = CallState::kIdle;
  finished_.push_back({.id = call_.id, .status = status, .how = how_});
}

bool LocalBackend::prepare_sleep() {
  if (!finished_.empty()) return false;
  if (state_ == CallState::kIdle) return true;
  host_->announce_sleep();
  return !advance();
}

void LocalBackend::wake_up() { host_->announce_waking(); }

// No buffer has been written to yet, because that begins only when all members have announced the call.
void LocalBackend::cancel(CallId, std::span<const int32_t>) {
  if (state_ == CallState::kIdle) return;  // the call has failed already
  RUEDA_CHECK(state_ == CallState::kWaitingForBuffer || state_ == CallState::kPosted,
              "a call that all members have started cannot be cancelled");
  for (const Peer& peer : peers_) host_->return_sequence(peer.index);
  if (state_ == CallState::kPosted && bytes_ > kInlineBytes)
    one_shot_users_[calls_ % 2].clear();  // the one-shot buffer was free before
  --calls_;
  end(Status::ok());
}

// Nobody has looked at what was announced and cancelled, so there is nothing to receive.
void LocalBackend::discard(const Call& call, std::span<const int32_t>) {
  finished_.push_back({.id = call.id, .status = Status::ok(), .how = ""});
}

void LocalBackend::abort(const Status& why) {
  RUEDA_CHECK(!why.is_ok(), "an abort needs a reason");
  broken_ = why;
  if (state_ != CallState::kIdle) end(why);
}

}  // namespace rueda::backend
