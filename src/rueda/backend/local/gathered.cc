#include "rueda/backend/local/gathered.h"

#include <cstring>

#include "rueda/backend/local/cost.h"
#include "rueda/backend/packing.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend {

bool Gathered::suits(const LocalCall& call) {
  const Collective what = call.call.spec.what;
  return (what == Collective::kAllreduce || what == Collective::kBarrier) &&
         call.ranks() > kMostDirectRanks && call.segments.count() * call.element <= kInlineBytes;
}

void Gathered::begin(LocalCall& call) {
  call_ = &call;
  bytes_ = call.call.spec.what == Collective::kBarrier ? 0 : call.segments.count() * call.element;
  find_my_place();
  call.meet(place_.children);
  if (has_parent()) call.meet(std::span(&place_.parent, 1));
  missing_ = place_.children.size();
  has_told_parent_ = false;
  if (bytes_ == 0) return;
  call.segments.for_range(0, call.segments.count(), [&](size_t index, size_t within, size_t at, size_t size) {
    load(call.call.spec, call.call.prescale, call.segments.segments()[index], within, size,
         payload_ + at * call.element);
  });
}

void Gathered::find_my_place() {
  const Group& group = *call_->call.group;
  if (me_ == group.me && members_ == group.members) return;
  members_ = group.members;
  me_ = group.me;
  std::vector<int32_t> nodes;
  for (const Rank rank : members_)
    nodes.push_back(call_->host->numa_node_of(static_cast<size_t>(call_->host->index_of(rank))));
  teams_ = make_teams(nodes);
  place_ = place_in(teams_, me_);
  if (has_parent()) return;
  sources_.assign(members_.size(), nullptr);
  for (size_t team = 1; team < teams_.size(); ++team) {
    const Rank leader = members_[static_cast<size_t>(teams_[team].front())];
    const ControlBlock& shown =
        call_->host->control_block(static_cast<size_t>(call_->host->index_of(leader)));
    for (size_t i = 0; i < teams_[team].size(); ++i)
      sources_[static_cast<size_t>(teams_[team][i])] = shown.gathered[i];
  }
}

LocalTurn Gathered::advance() {
  if (!has_told_parent_) {
    if (!children_have_arrived()) return LocalTurn::kWaits;
    for (const LocalPeer& child : children())
      if (!agrees(child)) return LocalTurn::kFailed;
    if (!has_parent()) {
      reduce();
      release();
      return LocalTurn::kOver;
    }
    gather();
    tell(parent());
    has_told_parent_ = true;
    return LocalTurn::kMoved;
  }
  if (!call_->has_arrived(parent())) return LocalTurn::kWaits;
  if (!agrees(parent())) return LocalTurn::kFailed;
  std::memcpy(payload_, call_->post_of(parent()).payload, bytes_);
  release();
  return LocalTurn::kOver;
}

std::optional<size_t> Gathered::waits_for() const {
  if (!has_told_parent_) return missing_ > 0 ? std::optional(children()[missing_ - 1].index) : std::nullopt;
  return parent().index;
}

bool Gathered::children_have_arrived() {
  while (missing_ > 0 && call_->has_arrived(children()[missing_ - 1])) --missing_;
  return missing_ == 0;
}

bool Gathered::agrees(const LocalPeer& peer) const { return call_->post_of(peer).bytes == bytes_; }

// The contributions of my team, for member 0.
void Gathered::gather() {
  if (place_.place != 0 || bytes_ == 0) return;
  auto& gathered = call_->host->my_control_block().gathered;
  std::memcpy(gathered[0], payload_, bytes_);
  for (size_t i = 0; i < children().size(); ++i)
    std::memcpy(gathered[i + 1], call_->post_of(children()[i]).payload, bytes_);
}

void Gathered::reduce() {
  if (bytes_ == 0) return;
  alignas(64) std::byte mine[kInlineBytes];
  std::memcpy(mine, payload_, bytes_);
  sources_[0] = mine;
  for (size_t place = 1; place < teams_.front().size(); ++place)
    sources_[static_cast<size_t>(teams_.front()[place])] = call_->post_of(children()[place - 1]).payload;
  const schedule::Spec& spec = call_->call.spec;
  kernels::reduce_sources(spec.op, spec.dtype, sources_, payload_, call_->segments.count(), spec.scale);
}

void Gathered::tell(const LocalPeer& peer) const {
  Post& post = call_->host->my_mailbox(peer.index).posts[peer.sequence % 2];
  post.is_registered = 0;
  post.parity = 0;
  post.bytes = bytes_;
  std::memcpy(post.payload, payload_, bytes_);
  store_shared(post.arrived, arrival_of(peer.sequence, call_->call.generation));
  call_->host->ring(peer.index);
}

// Leaders of other teams first, because they have others to release. Then my team in ascending order, in
// which it will then come to the next call, where I wait for the last of them.
void Gathered::release() {
  const size_t in_team = place_.place == 0 ? teams_[place_.team].size() - 1 : 0;
  for (const LocalPeer& leader : children().subspan(in_team)) tell(leader);
  for (const LocalPeer& member : children().first(in_team)) tell(member);
  if (bytes_ == 0) return;
  call_->segments.for_range(
      0, call_->segments.count(), [&](size_t index, size_t within, size_t at, size_t size) {
        if (call_->segments.segments()[index].output == nullptr) return;
        std::memcpy(call_->output_of(index, within), payload_ + at * call_->element, size * call_->element);
      });
}

}  // namespace rueda::backend
