#include "rueda/backend/local/exchange.h"

#include <algorithm>
#include <cstring>

#include "rueda/backend/local/streaming_copy.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend {

void LocalExchange::begin(const LocalCall& call) {
  call_ = &call;
  plan_.assign(call.call.spec, *call.call.group, call.segments.segments());
  shows_registered_ = false;
  is_valid_ = true;
  writes_past_caches_ = plan_.taken_bytes() >= kStreamedFromBytes;
  contributed_ = to_contribute_ = 0;
  next_giver_ = (static_cast<size_t>(call.me()) + 1) % call.ranks();  // so that not all read from the same
  sources_.resize(call.ranks());
}

void LocalExchange::prepare() {
  const Parcel& mine = plan_.outgoing(call_->me());
  if (is_inline()) return loads_own() ? load_range(mine, 0, mine.count(), own_payload_) : void();
  shows_registered_ =
      plan_.given_bytes() >= kRegisteredFromBytes && !call_->must_load && call_->show_addresses(false);
  if (shows_registered_ || plan_.algorithm() != LocalAlgorithm::kOneShot) return;
  std::byte* const buffer = call_->host->my_control_block().one_shot[call_->parity];
  for_receivers([&](Rank to, const Parcel& parcel) {
    load_range(parcel, 0, parcel.count(), buffer + plan_.one_shot_begin_to(to));
  });
}

void LocalExchange::write_payload(const LocalPeer& peer, std::byte* payload) const {
  const Parcel& parcel = plan_.outgoing(peer.member);
  load_range(parcel, 0, parcel.count(), payload);
}

std::string_view LocalExchange::choose() {
  givers_.assign(call_->ranks(), {});
  for (const LocalPeer& peer : call_->peers)
    givers_[static_cast<size_t>(peer.member)] = {
        .peer = &peer, .is_registered = !is_inline() && call_->post_of(peer).is_registered != 0};
  const bool is_staged = plan_.algorithm() == LocalAlgorithm::kStaged;
  bool all_registered = !is_inline() && (shows_registered_ || !plan_.gives());
  for (Rank member = 0; member < std::ssize(givers_); ++member) {
    Giver& giver = givers_[static_cast<size_t>(member)];
    giver.chunks = plan_.chunks_of(plan_.incoming(member));
    if (giver.peer == nullptr) continue;
    all_registered = all_registered && (giver.is_registered || giver.chunks == 0);
    if (is_staged && giver.chunks == 0) call_->tell(*giver.peer, &Progress::taken, kMostChunks);
  }
  if (is_staged && !shows_registered_) {
    to_contribute_ = plan_.outgoing_chunks();
    if (loads_own()) to_contribute_ = std::max(to_contribute_, givers_[my_place()].chunks);
  }
  return name_of(all_registered ? LocalAlgorithm::kRegistered : plan_.algorithm());
}

LocalTurn LocalExchange::advance() {
  const bool moved = contribute() || (reduces() ? reduce() : take());
  if (!is_valid_) return LocalTurn::kFailed;
  const bool is_over = contributed_ == to_contribute_ && std::ranges::all_of(givers_, [](const Giver& giver) {
                         return giver.taken == giver.chunks;
                       });
  if (!is_over) return moved ? LocalTurn::kMoved : LocalTurn::kWaits;
  if (!is_inline()) call_->leave();
  return shows_registered_ ? LocalTurn::kOthersRead : LocalTurn::kOver;
}

// Fills the next of my stages, when the others have taken what it held.
bool LocalExchange::contribute() {
  if (contributed_ == to_contribute_) return false;
  if (contributed_ == 0) {
    if (!stages_.are_done(*call_->host)) return false;
    stages_.note(*call_);
  }
  if (contributed_ >= kExchangeStages) {
    const uint64_t needed = contributed_ - kExchangeStages + 1;
    for (const LocalPeer& peer : call_->peers)
      if (!call_->has_reached(peer, &Progress::taken, needed)) return false;
    if (loads_own() && givers_[my_place()].taken < std::min(needed, givers_[my_place()].chunks)) return false;
  }
  std::byte* const stage = call_->host->my_control_block().stages[contributed_ % kExchangeStages];
  const size_t begin = contributed_ * plan_.lane_elements();
  for_receivers([&](Rank to, const Parcel& parcel) {
    const size_t end = std::min(begin + plan_.lane_elements(), parcel.count());
    if (begin < end) load_range(parcel, begin, end, stage + plan_.lane_begin(to));
  });
  call_->tell_all(&Progress::staged, ++contributed_);
  return true;
}

// Takes a chunk from the next member that has one.
bool LocalExchange::take() {
  for (size_t tried = 0; tried < givers_.size(); ++tried) {
    const size_t member = next_giver_;
    next_giver_ = (next_giver_ + 1) % givers_.size();
    Giver& giver = givers_[member];
    if (giver.taken == giver.chunks || !has(giver, giver.taken)) continue;
    const Parcel& parcel = plan_.incoming(static_cast<Rank>(member));
    const auto copy = [&](std::byte* to, const std::byte* from, size_t bytes) {
      writes_past_caches_ ? streaming_copy(to, from, bytes) : static_cast<void>(std::memcpy(to, from, bytes));
    };
    const size_t begin = giver.taken * plan_.lane_elements();
    const size_t end = std::min(begin + plan_.lane_elements(), parcel.count());
    parcel.for_range(begin, end, [&](const ParcelPiece& piece) {
      if (call_->segments.segments()[piece.segment].output == nullptr || !is_valid_) return;
      const std::byte* const from = source(giver, member, piece);
      std::byte* const to = call_->output_of(piece.segment, piece.output);
      if (from != nullptr && from != to) copy(to, from, piece.count * call_->element);
    });
    note_taken(giver);
    return true;
  }
  return false;
}

// Reduces a chunk of my result, when all members have given theirs.
bool LocalExchange::reduce() {
  const uint64_t chunk = givers_.front().taken;
  if (chunk == givers_.front().chunks) return false;
  for (const Giver& giver : givers_)
    if (!has(giver, chunk)) return false;
  const Parcel& mine = plan_.incoming(call_->me());  // those of the others have the same places
  const size_t begin = chunk * plan_.lane_elements();
  const size_t end = std::min(begin + plan_.lane_elements(), mine.count());
  const schedule::Spec& spec = call_->call.spec;
  mine.for_range(begin, end, [&](const ParcelPiece& piece) {
    if (call_->segments.segments()[piece.segment].output == nullptr) return;
    for (size_t member = 0; member < givers_.size(); ++member)
      sources_[member] = source(givers_[member], member, piece);
    if (!is_valid_) return;
    kernels::reduce_sources(spec.op, spec.dtype, sources_, call_->output_of(piece.segment, piece.output),
                            piece.count, spec.scale);
  });
  for (Giver& giver : givers_) note_taken(giver);
  return true;
}

void LocalExchange::note_taken(Giver& giver) {
  ++giver.taken;
  if (giver.peer == nullptr || giver.is_registered || plan_.algorithm() != LocalAlgorithm::kStaged) return;
  // What it gives others may be longer.
  call_->tell(*giver.peer, &Progress::taken, giver.taken == giver.chunks ? kMostChunks : giver.taken);
}

bool LocalExchange::has(const Giver& giver, uint64_t chunk) const {
  if (giver.is_registered || plan_.algorithm() != LocalAlgorithm::kStaged) return true;
  if (giver.peer == nullptr) return !loads_own() || contributed_ > chunk;
  return call_->has_reached(*giver.peer, &Progress::staged, chunk + 1);
}

// Where a part of the chunk that is taken next lies; null if its giver has published a wrong address.
const std::byte* LocalExchange::source(const Giver& giver, size_t member, const ParcelPiece& piece) {
  const size_t element = call_->element;
  if (giver.peer == nullptr && !loads_own()) {
    const std::byte* const input = call_->input_of(piece.segment, 0);
    return input + piece.input * element;
  }
  if (giver.is_registered) {
    const LocalPeer& peer = *giver.peer;
    const ControlBlock& shown = call_->host->control_block(peer.index);
    const uint64_t input = shown.tables[call_->post_of(peer).parity][piece.segment].input;
    const memory::SharedMemory* const arena = call_->host->rank(peer.index).arena;
    const size_t end = (piece.input + piece.count) * element;
    is_valid_ = is_valid_ && arena != nullptr && input <= arena->bytes() && end <= arena->bytes() - input;
    return is_valid_ ? arena->base() + input + piece.input * element : nullptr;
  }
  const bool is_mine = giver.peer == nullptr;
  const ControlBlock& block =
      is_mine ? call_->host->my_control_block() : call_->host->control_block(giver.peer->index);
  if (plan_.algorithm() == LocalAlgorithm::kStaged)
    return block.stages[giver.taken % kExchangeStages] + plan_.lane_begin(call_->me()) +
           (piece.at - giver.taken * plan_.lane_elements()) * element;
  if (plan_.algorithm() == LocalAlgorithm::kOneShot) {
    const size_t parity = is_mine ? call_->parity : call_->post_of(*giver.peer).parity;
    return block.one_shot[parity] + plan_.one_shot_begin_from(static_cast<Rank>(member)) + piece.at * element;
  }
  return (is_mine ? own_payload_ : call_->post_of(*giver.peer).payload) + piece.at * element;
}

// Writes my contribution to [begin, end) of a parcel: prescaled, or identity elements where I have no input.
void LocalExchange::load_range(const Parcel& parcel, size_t begin, size_t end, std::byte* to) const {
  const Call& call = call_->call;
  parcel.for_range(begin, end, [&](const ParcelPiece& piece) {
    load(call.spec, call.prescale, call_->segments.segments()[piece.segment], piece.input, piece.count,
         to + (piece.at - begin) * call_->element);
  });
}

}  // namespace rueda::backend
