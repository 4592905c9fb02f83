#include "rueda/backend/local/local_call.h"

#include <algorithm>

#include "rueda/backend/packing.h"

namespace rueda::backend {

void LocalCall::assign(const Call& next) {
  call = next;
  segments.assign(call.segments);
  element = size_of(call.spec.dtype);
  must_load = call.prescale != 1.0 || std::ranges::any_of(segments.segments(), [](const Segment& s) {
                return s.input == nullptr && s.count > 0;
              });
  peers.clear();
}

void LocalCall::meet(std::span<const Rank> members) {
  for (const Rank member : members) {
    const auto index = static_cast<size_t>(host->index_of(call.group->members[static_cast<size_t>(member)]));
    peers.push_back({.index = index, .member = member, .sequence = host->next_sequence(index)});
  }
}

void LocalCall::meet_all() {
  for (Rank member = 0; member < call.group->size(); ++member)
    if (member != me()) meet(std::span(&member, 1));
}

// A post with the same sequence but another generation announces a cancelled call of the peer, which will use
// that sequence again.
bool LocalCall::has_arrived(const LocalPeer& peer) const {
  return load_shared(post_of(peer).arrived) == arrival_of(peer.sequence, call.generation);
}

void LocalCall::tell(const LocalPeer& peer, uint64_t Progress::*field, uint64_t chunks) const {
  store_shared(host->my_mailbox(peer.index).progress.*field, progress_of(peer.sequence, chunks));
  host->ring(peer.index);
}

void LocalCall::tell_all(uint64_t Progress::*field, uint64_t chunks) const {
  for (const LocalPeer& peer : peers) tell(peer, field, chunks);
}

void LocalCall::leave() const {
  for (const LocalPeer& peer : peers) {
    store_shared(host->my_mailbox(peer.index).progress.finished, peer.sequence);
    host->ring(peer.index);
  }
}

const LocalPeer* LocalCall::one_inside() const {
  const auto one = std::ranges::find_if_not(
      peers, [&](const LocalPeer& peer) { return host->has_finished(peer.index, peer.sequence); });
  return one == peers.end() ? nullptr : &*one;
}

bool LocalCall::show_addresses(bool with_outputs) const {
  const memory::SharedMemory* arena = host->rank(host->me()).arena;
  if (arena == nullptr || segments.segments().size() > kMaxRegisteredSegments) return false;
  SegmentAddress* table = host->my_control_block().tables[parity];
  const auto n = static_cast<Rank>(ranks());
  for (const Segment& segment : segments.segments()) {
    const size_t bytes = static_cast<size_t>(elements_given(call.spec.what, segment, me(), n)) * element;
    SegmentAddress& shown = *table++ = {};
    if (bytes == 0) continue;
    if (!arena->holds(segment.input, bytes)) return false;
    shown.input = arena->offset_of(segment.input);
    if (!with_outputs) continue;
    if (!arena->holds(segment.output, bytes)) return false;
    shown.output = arena->offset_of(segment.output);
  }
  return true;
}

const std::byte* LocalCall::input_of(size_t segment, size_t element_at) const {
  return static_cast<const std::byte*>(segments.segments()[segment].input) + element_at * element;
}

std::byte* LocalCall::output_of(size_t segment, size_t element_at) const {
  return static_cast<std::byte*>(segments.segments()[segment].output) + element_at * element;
}

std::optional<size_t> BufferUsers::one_left(const LocalHost& host) const {
  const auto one = std::ranges::find_if_not(
      users_, [&](const User& user) { return host.has_finished(user.index, user.sequence); });
  return one == users_.end() ? std::nullopt : std::optional(one->index);
}

void BufferUsers::note(const LocalCall& call) {
  users_.clear();
  for (const LocalPeer& peer : call.peers) users_.push_back({.index = peer.index, .sequence = peer.sequence});
}

}  // namespace rueda::backend
