#include "rueda/backend/local/reduction.h"

#include <algorithm>
#include <cstring>

#include "rueda/backend/local/cost.h"
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

void Reduction::begin(const LocalCall& call) {
  call_ = &call;
  bytes_ = elements() * call.element;
  shows_registered_ = false;
  contributed_ = reduced_ = taken_ = 0;
  reduced_to_ = 0;
  sources_.resize(call.ranks());
}

void Reduction::prepare() {
  if (is_inline()) return load_range(0, elements(), payload_);
  shows_registered_ = bytes_ >= kRegisteredFromBytes && !call_->must_load && call_->show_addresses(true);
  if (!shows_registered_ && bytes_ <= one_shot_limit_bytes(call_->ranks()))
    load_range(0, elements(), call_->host->my_control_block().one_shot[call_->parity]);
}

void Reduction::write_payload(const LocalPeer&, std::byte* payload) const {
  std::memcpy(payload, payload_, bytes_);
}

std::string_view Reduction::choose() {
  if (is_inline()) {
    run_ = &Reduction::reduce_posts;
    return name_of(LocalAlgorithm::kInline);
  }
  const bool all_registered =
      shows_registered_ && std::ranges::all_of(call_->peers, [&](const LocalPeer& peer) {
        return call_->post_of(peer).is_registered != 0;
      });
  if (all_registered) {
    run_ = &Reduction::reduce_registered;
    return name_of(LocalAlgorithm::kRegistered);
  }
  if (bytes_ <= one_shot_limit_bytes(call_->ranks())) {
    if (shows_registered_) {  // another rank's tensors are not, so mine go through the one-shot buffer, too
      load_range(0, elements(), call_->host->my_control_block().one_shot[call_->parity]);
      call_->tell_all(&Progress::staged, 1);
    }
    run_ = &Reduction::reduce_slots;
    return name_of(LocalAlgorithm::kOneShot);
  }
  run_ = &Reduction::run_stages;
  chunk_elements_ = kChunkBytes / call_->element;
  chunks_ = (elements() + chunk_elements_ - 1) / chunk_elements_;
  return name_of(LocalAlgorithm::kStaged);
}

// Writes my contribution to [begin, end): prescaled, or identity elements if this rank has no input.
void Reduction::load_range(size_t begin, size_t end, std::byte* to) const {
  call_->segments.for_range(begin, end, [&](size_t index, size_t within, size_t at, size_t size) {
    load(call_->call.spec, call_->call.prescale, call_->segments.segments()[index], within, size,
         to + (at - begin) * call_->element);
  });
}

// Of the sources, in rank order.
void Reduction::reduce(std::byte* result, size_t size) {
  const schedule::Spec& spec = call_->call.spec;
  kernels::reduce_sources(spec.op, spec.dtype, sources_, result, size, spec.scale);
}

// Member `member` owns the elements [slice_begin(member), slice_begin(member + 1)) of `count`. Slices begin
// at cache lines.
size_t Reduction::slice_begin(size_t count, Rank member) const {
  const size_t ranks = call_->ranks();
  const size_t line = std::max<size_t>(kCacheLine / call_->element, 1);
  const size_t each = ((count + ranks - 1) / ranks + line - 1) / line * line;
  return std::min(count, each * static_cast<size_t>(member));
}

LocalTurn Reduction::reduce_posts() {
  if (call_->call.spec.what == Collective::kBarrier || bytes_ == 0) return LocalTurn::kOver;
  alignas(kCacheLine) std::byte result[kInlineBytes];
  std::ranges::fill(sources_, payload_);
  for (const LocalPeer& peer : call_->peers)
    sources_[static_cast<size_t>(peer.member)] = call_->post_of(peer).payload;
  reduce(result, elements());
  call_->segments.for_range(0, elements(), [&](size_t index, size_t within, size_t at, size_t size) {
    const Segment& segment = call_->segments.segments()[index];
    if (segment.output == nullptr) return;
    std::memcpy(call_->output_of(index, within), result + at * call_->element, size * call_->element);
  });
  return LocalTurn::kOver;
}

LocalTurn Reduction::reduce_slots() {
  // A peer that had published its addresses copies its input into its one-shot buffer only now.
  for (const LocalPeer& peer : call_->peers) {
    if (call_->post_of(peer).is_registered != 0 && !call_->has_reached(peer, &Progress::staged, 1))
      return LocalTurn::kWaits;
  }
  const std::byte* my_copy = call_->host->my_control_block().one_shot[call_->parity];
  call_->segments.for_range(0, elements(), [&](size_t index, size_t within, size_t at, size_t size) {
    const Segment& segment = call_->segments.segments()[index];
    if (segment.output == nullptr) return;
    sources_[static_cast<size_t>(call_->me())] =
        call_->must_load ? my_copy + at * call_->element : call_->input_of(index, within);
    for (const LocalPeer& peer : call_->peers)
      sources_[static_cast<size_t>(peer.member)] =
          call_->host->control_block(peer.index).one_shot[call_->post_of(peer).parity] + at * call_->element;
    reduce(call_->output_of(index, within), size);
  });
  call_->leave();
  return LocalTurn::kOver;
}

// Contributes to chunk k, reduces chunk k - 1 and takes chunk k - 2. If all ranks keep pace, each step then
// finds what it needs.
LocalTurn Reduction::run_stages() {
  if (contributed_ <= taken_ + 2 && contribute()) return LocalTurn::kMoved;
  if (reduce_chunk()) return LocalTurn::kMoved;
  if (!take_chunk()) return contribute() ? LocalTurn::kMoved : LocalTurn::kWaits;
  if (taken_ < chunks_) return LocalTurn::kMoved;
  call_->leave();
  return LocalTurn::kOver;
}

bool Reduction::contribute() {
  if (contributed_ == chunks_) return false;
  if (contributed_ == 0) {
    if (!stages_.are_done(*call_->host)) return false;
    stages_.note(*call_);
  }
  // Each peer must have reduced its slice of what this stage held before.
  if (contributed_ >= kStages) {
    for (const LocalPeer& peer : call_->peers)
      if (!call_->has_reached(peer, &Progress::reduced, contributed_ - kStages + 1)) return false;
  }
  const size_t begin = contributed_ * chunk_elements_;
  const size_t count = std::min(chunk_elements_, elements() - begin);
  std::byte* stage = call_->host->my_control_block().stages[contributed_ % kStages];
  for (Rank member = 0; member < static_cast<Rank>(call_->ranks()); ++member) {
    if (member == call_->me() && !call_->must_load) continue;  // my own slice is read from the tensor
    const size_t from = slice_begin(count, member), to = slice_begin(count, member + 1);
    load_range(begin + from, begin + to, stage + from * call_->element);
  }
  call_->tell_all(&Progress::staged, ++contributed_);
  return true;
}

bool Reduction::reduce_chunk() {
  if (reduced_ >= contributed_) return false;
  for (const LocalPeer& peer : call_->peers) {
    if (!call_->has_reached(peer, &Progress::staged, reduced_ + 1)) return false;
    // The peer must have taken what the stage for my result held before.
    if (reduced_ >= kStages && !call_->has_reached(peer, &Progress::taken, reduced_ - kStages + 1))
      return false;
  }
  const size_t begin = reduced_ * chunk_elements_;
  const size_t count = std::min(chunk_elements_, elements() - begin);
  const Rank me = call_->me();
  const size_t from = slice_begin(count, me), to = slice_begin(count, me + 1);
  const size_t stage = reduced_ % kStages;
  ControlBlock& control_block = call_->host->my_control_block();
  call_->segments.for_range(
      begin + from, begin + to, [&](size_t index, size_t within, size_t at, size_t size) {
        const Segment& segment = call_->segments.segments()[index];
        const size_t offset = (at - begin) * call_->element;
        sources_[static_cast<size_t>(me)] =
            call_->must_load ? control_block.stages[stage] + offset : call_->input_of(index, within);
        for (const LocalPeer& peer : call_->peers)
          sources_[static_cast<size_t>(peer.member)] =
              call_->host->control_block(peer.index).stages[stage] + offset;
        std::byte* result = control_block.stages[kStages + stage] + offset;
        reduce(result, size);
        if (segment.output != nullptr)
          std::memcpy(call_->output_of(index, within), result, size * call_->element);
      });
  call_->tell_all(&Progress::reduced, ++reduced_);
  return true;
}

bool Reduction::take_chunk() {
  if (taken_ >= reduced_) return false;
  for (const LocalPeer& peer : call_->peers)
    if (!call_->has_reached(peer, &Progress::reduced, taken_ + 1)) return false;
  const size_t begin = taken_ * chunk_elements_;
  const size_t count = std::min(chunk_elements_, elements() - begin);
  for (const LocalPeer& peer : call_->peers) {
    const std::byte* results = call_->host->control_block(peer.index).stages[kStages + taken_ % kStages];
    const size_t from = slice_begin(count, peer.member), to = slice_begin(count, peer.member + 1);
    call_->segments.for_range(begin + from, begin + to,
                              [&](size_t index, size_t within, size_t at, size_t size) {
                                const Segment& segment = call_->segments.segments()[index];
                                if (segment.output == nullptr) return;
                                std::memcpy(call_->output_of(index, within),
                                            results + (at - begin) * call_->element, size * call_->element);
                              });
  }
  call_->tell_all(&Progress::taken, ++taken_);
  return true;
}

LocalTurn Reduction::reduce_registered() {
  const Rank me = call_->me();
  const size_t begin = slice_begin(elements(), me), end_at = slice_begin(elements(), me + 1);
  const size_t from = begin + reduced_to_;
  const size_t to = std::min(end_at, from + kBudgetBytes / call_->element);
  bool is_valid = true;
  call_->segments.for_range(from, to, [&](size_t index, size_t within, size_t, size_t size) {
    const size_t block = std::max<size_t>(kBlockBytes / call_->element, 1);
    for (size_t done = 0; done < size && is_valid; done += block) {
      const size_t count = std::min(block, size - done);
      const size_t offset = (within + done) * call_->element;
      sources_[static_cast<size_t>(me)] = call_->input_of(index, within + done);
      for (const LocalPeer& peer : call_->peers) {
        const SegmentAddress& shown =
            call_->host->control_block(peer.index).tables[call_->post_of(peer).parity][index];
        const memory::SharedMemory* arena = call_->host->rank(peer.index).arena;
        const auto fits = [&](uint64_t at) {
          return arena != nullptr && at <= arena->bytes() &&
                 offset + count * call_->element <= arena->bytes() - at;
        };
        is_valid = is_valid && fits(shown.input) && fits(shown.output);
        if (is_valid) sources_[static_cast<size_t>(peer.member)] = arena->base() + shown.input + offset;
      }
      if (!is_valid) return;
      std::byte* mine = call_->output_of(index, within + done);
      reduce(mine, count);
      for (const LocalPeer& peer : call_->peers) {
        const SegmentAddress& shown =
            call_->host->control_block(peer.index).tables[call_->post_of(peer).parity][index];
        std::memcpy(call_->host->rank(peer.index).arena->base() + shown.output + offset, mine,
                    count * call_->element);
      }
    }
  });
  if (!is_valid) return LocalTurn::kFailed;
  reduced_to_ += to - from;
  if (to < end_at) return LocalTurn::kMoved;
  call_->leave();
  return LocalTurn::kOthersRead;
}

}  // namespace rueda::backend
