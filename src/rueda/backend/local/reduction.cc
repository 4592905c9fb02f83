// The algorithms of a local call: what happens once every member has announced it.

#include <algorithm>
#include <cstring>

#include "rueda/backend/local/local.h"
#include "rueda/base/check.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend {
namespace {

constexpr size_t kCacheLine = 64;
// A result is copied to the other ranks in blocks of this size, while it is still in the L1 cache
// (half of one).
constexpr size_t kBlockBytes = 16 << 10;
// About 200 us of work; then the caller looks after its other transports.
constexpr size_t kBudgetBytes = 2 << 20;

}  // namespace

// Member `member` owns the elements [slice_begin(member), slice_begin(member + 1)) of `count`. Slices begin
// at cache lines.
size_t LocalBackend::slice_begin(size_t count, Rank member) const {
  const size_t ranks = peers_.size() + 1;
  const size_t line = std::max<size_t>(kCacheLine / element_, 1);
  const size_t each = ((count + ranks - 1) / ranks + line - 1) / line * line;
  return std::min(count, each * static_cast<size_t>(member));
}

void LocalBackend::reduce_posts() {
  if (call_.spec.what == Collective::kBarrier || bytes_ == 0) return;
  alignas(kCacheLine) std::byte mine[kInlineBytes];
  alignas(kCacheLine) std::byte result[kInlineBytes];
  load_range(0, segments_.count(), mine);
  sources_.assign(peers_.size() + 1, mine);
  for (const Peer& peer : peers_) sources_[static_cast<size_t>(peer.member)] = post_of(peer).payload;
  kernels::reduce_sources(call_.spec.op, call_.spec.dtype, sources_, result, segments_.count(),
                          call_.spec.scale);
  segments_.for_range(0, segments_.count(), [&](size_t index, size_t within, size_t at, size_t size) {
    const Segment& segment = segments_.segments()[index];
    if (segment.output == nullptr) return;
    std::memcpy(static_cast<std::byte*>(segment.output) + within * element_, result + at * element_,
                size * element_);
  });
}

bool LocalBackend::reduce_slots() {
  // A peer that had published its addresses copies its input into its one-shot buffer only now.
  for (const Peer& peer : peers_) {
    if (post_of(peer).is_registered != 0 &&
        load_shared(host_->mailbox_of(peer.index).progress.staged) < progress_of(peer.sequence, 1))
      return false;
  }
  const std::byte* my_copy = host_->my_control_block().one_shot[calls_ % 2];
  sources_.resize(peers_.size() + 1);
  segments_.for_range(0, segments_.count(), [&](size_t index, size_t within, size_t at, size_t size) {
    const Segment& segment = segments_.segments()[index];
    if (segment.output == nullptr) return;
    const auto* input = static_cast<const std::byte*>(segment.input);
    sources_[static_cast<size_t>(call_.group->me)] =
        must_load_ ? my_copy + at * element_ : input + within * element_;
    for (const Peer& peer : peers_)
      sources_[static_cast<size_t>(peer.member)] =
          host_->control_block(peer.index).one_shot[post_of(peer).parity] + at * element_;
    kernels::reduce_sources(call_.spec.op, call_.spec.dtype, sources_,
                            static_cast<std::byte*>(segment.output) + within * element_, size,
                            call_.spec.scale);
  });
  leave();
  end(Status::ok());
  return true;
}

// Contributes to chunk k, reduces chunk k - 1 and takes chunk k - 2. If all ranks keep pace, each step then
// finds what it needs.
bool LocalBackend::run_stages() {
  if (contributed_ <= taken_ + 2 && contribute()) return true;
  if (reduce_chunk()) return true;
  if (take_chunk()) {
    if (taken_ == chunks_) {
      leave();
      end(Status::ok());
    }
    return true;
  }
  return contribute();
}

bool LocalBackend::contribute() {
  if (contributed_ == chunks_) return false;
  if (contributed_ == 0) {
    if (!is_free(stage_users_)) return false;
    note_users(stage_users_);
  }
  // Each peer must have reduced its slice of what this stage held before.
  if (contributed_ >= kStages) {
    for (const Peer& peer : peers_) {
      const uint64_t needed = progress_of(peer.sequence, contributed_ - kStages + 1);
      if (load_shared(host_->mailbox_of(peer.index).progress.reduced) < needed) return false;
    }
  }
  const size_t begin = contributed_ * chunk_elements_;
  const size_t count = std::min(chunk_elements_, segments_.count() - begin);
  std::byte* stage = host_->my_control_block().contributions[contributed_ % kStages];
  for (Rank member = 0; member < call_.group->size(); ++member) {
    if (member == call_.group->me && !must_load_) continue;  // my own slice is read from the tensor
    const size_t from = slice_begin(count, member), to = slice_begin(count, member + 1);
    load_range(begin + from, begin + to, stage + from * element_);
  }
  publish(&Progress::staged, ++contributed_);
  return true;
}

bool LocalBackend::reduce_chunk() {
  if (reduced_ >= contributed_) return false;
  for (const Peer& peer : peers_) {
    const Progress& progress = host_->mailbox_of(peer.index).progress;
    if (load_shared(progress.staged) < progress_of(peer.sequence, reduced_ + 1)) return false;
    // The peer must have taken what the stage for my result held before.
    if (reduced_ >= kStages &&
        load_shared(progress.taken) < progress_of(peer.sequence, reduced_ - kStages + 1))
      return false;
  }
  const size_t begin = reduced_ * chunk_elements_;
  const size_t count = std::min(chunk_elements_, segments_.count() - begin);
  const Rank me = call_.group->me;
  const size_t from = slice_begin(count, me), to = slice_begin(count, me + 1);
  const size_t stage = reduced_ % kStages;
  ControlBlock& control_block = host_->my_control_block();
  sources_.resize(peers_.size() + 1);
  segments_.for_range(begin + from, begin + to, [&](size_t index, size_t within, size_t at, size_t size) {
    const Segment& segment = segments_.segments()[index];
    const size_t offset = (at - begin) * element_;
    sources_[static_cast<size_t>(me)] =
        must_load_ ? control_block.contributions[stage] + offset
                   : static_cast<const std::byte*>(segment.input) + within * element_;
    for (const Peer& peer : peers_)
      sources_[static_cast<size_t>(peer.member)] =
          host_->control_block(peer.index).contributions[stage] + offset;
    std::byte* result = control_block.results[stage] + offset;
    kernels::reduce_sources(call_.spec.op, call_.spec.dtype, sources_, result, size, call_.spec.scale);
    if (segment.output != nullptr)
      std::memcpy(static_cast<std::byte*>(segment.output) + within * element_, result, size * element_);
  });
  publish(&Progress::reduced, ++reduced_);
  return true;
}

bool LocalBackend::take_chunk() {
  if (taken_ >= reduced_) return false;
  for (const Peer& peer : peers_) {
    const Progress& progress = host_->mailbox_of(peer.index).progress;
    if (load_shared(progress.reduced) < progress_of(peer.sequence, taken_ + 1)) return false;
  }
  const size_t begin = taken_ * chunk_elements_;
  const size_t count = std::min(chunk_elements_, segments_.count() - begin);
  for (const Peer& peer : peers_) {
    const std::byte* results = host_->control_block(peer.index).results[taken_ % kStages];
    const size_t from = slice_begin(count, peer.member), to = slice_begin(count, peer.member + 1);
    segments_.for_range(begin + from, begin + to, [&](size_t index, size_t within, size_t at, size_t size) {
      const Segment& segment = segments_.segments()[index];
      if (segment.output == nullptr) return;
      std::memcpy(static_cast<std::byte*>(segment.output) + within * element_,
                  results + (at - begin) * element_, size * element_);
    });
  }
  publish(&Progress::taken, ++taken_);
  return true;
}

bool LocalBackend::reduce_registered() {
  const Rank me = call_.group->me;
  const size_t begin = slice_begin(segments_.count(), me), end_at = slice_begin(segments_.count(), me + 1);
  const size_t from = begin + reduced_to_;
  const size_t to = std::min(end_at, from + kBudgetBytes / element_);
  sources_.resize(peers_.size() + 1);
  bool is_valid = true;
  segments_.for_range(from, to, [&](size_t index, size_t within, size_t, size_t size) {
    const Segment& segment = segments_.segments()[index];
    const size_t block = std::max<size_t>(kBlockBytes / element_, 1);
    for (size_t done = 0; done < size && is_valid; done += block) {
      const size_t count = std::min(block, size - done);
      const size_t offset = (within + done) * element_;
      sources_[static_cast<size_t>(me)] = static_cast<const std::byte*>(segment.input) + offset;
      for (const Peer& peer : peers_) {
        const SegmentAddress& shown = host_->control_block(peer.index).tables[post_of(peer).parity][index];
        const memory::SharedMemory* arena = host_->rank(peer.index).arena;
        const auto fits = [&](uint64_t at) {
          return arena != nullptr && at <= arena->bytes() && offset + count * element_ <= arena->bytes() - at;
        };
        is_valid = is_valid && fits(shown.input) && fits(shown.output);
        if (is_valid) sources_[static_cast<size_t>(peer.member)] = arena->base() + shown.input + offset;
      }
      if (!is_valid) return;
      std::byte* mine = static_cast<std::byte*>(segment.output) + offset;
      kernels::reduce_sources(call_.spec.op, call_.spec.dtype, sources_, mine, count, call_.spec.scale);
      for (const Peer& peer : peers_) {
        const SegmentAddress& shown = host_->control_block(peer.index).tables[post_of(peer).parity][index];
        std::memcpy(host_->rank(peer.index).arena->base() + shown.output + offset, mine, count * element_);
      }
    }
  });
  if (!is_valid) {
    end({Code::kInternal, "a rank of this host published addresses outside its memory; please report it."});
    return true;
  }
  reduced_to_ += to - from;
  if (to < end_at) return true;
  leave();  // the others may still be reading my inputs and writing my outputs
  state_ = CallState::kLeaving;
  return true;
}

}  // namespace rueda::backend
