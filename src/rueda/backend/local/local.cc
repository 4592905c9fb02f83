#include "rueda/backend/local/local.h"

#include <algorithm>
#include <string>
#include <utility>

#include "rueda/backend/local/cost.h"
#include "rueda/base/check.h"

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

}  // namespace

bool LocalBackend::accepts(const Group& group, const schedule::Spec& spec, const Memory& memory) const {
  return memory.kind != MemoryKind::kDevice && spec.op != ReduceOp::kAdasum && group.size() > 1 &&
         std::ranges::all_of(group.members, [&](Rank r) { return host_->index_of(r) >= 0; }) &&
         ExchangePlan::can_plan(spec, group.members.size()) && ExchangePlan::pays(spec, group.members.size());
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
  how_ = "";
  call_.assign(call);
  if (!broken_.is_ok()) return end(broken_);
  ++calls_;
  call_.parity = calls_ % 2;
  call.note(Activity::kTransfer);
  if (Gathered::suits(call_)) {
    how_ = name_of(LocalAlgorithm::kGathered);
    gathered_.begin(call_);
    state_ = CallState::kGathering;
    return;
  }
  call_.meet_all();
  missing_ = call_.peers.size();
  const bool reduces = call.spec.what == Collective::kAllreduce || call.spec.what == Collective::kBarrier;
  work_ = reduces ? static_cast<LocalWork*>(&reduction_) : &exchange_;
  work_->begin(call_);
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
    case CallState::kRunning:
      return run();
    case CallState::kLeaving:
      if (call_.one_inside() != nullptr) return false;
      end(Status::ok());
      return true;
    case CallState::kGathering:
      return run_gathered();
  }
  return false;
}

bool LocalBackend::post() {
  BufferUsers& users = one_shot_users_[call_.parity];
  if (!work_->is_inline() && !users.are_done(*host_)) return false;
  work_->prepare();
  if (!work_->is_inline()) users.note(call_);
  for (const LocalPeer& peer : call_.peers) {
    Post& post = host_->my_mailbox(peer.index).posts[peer.sequence % 2];
    post.is_registered = work_->shows_table() ? 1 : 0;
    post.parity = static_cast<uint32_t>(call_.parity);
    post.bytes = work_->bytes();
    if (work_->is_inline()) work_->write_payload(peer, post.payload);
    store_shared(post.arrived, arrival_of(peer.sequence, call_.call.generation));
    host_->ring(peer.index);
  }
  state_ = CallState::kPosted;
  return true;
}

// All members have announced the call, so all of them choose from the same values.
bool LocalBackend::choose_algorithm() {
  for (const LocalPeer& peer : call_.peers) {
    const Post& post = call_.post_of(peer);
    if (post.bytes == work_->bytes() && post.parity < 2) continue;
    end({Code::kInternal, "rank " + std::to_string(host_->rank(peer.index).world_rank) + " announced " +
                              std::to_string(post.bytes) + " bytes where this rank has " +
                              std::to_string(work_->bytes()) + "; please report it."});
    return true;
  }
  how_ = work_->choose();
  state_ = CallState::kRunning;
  run();
  return true;
}

bool LocalBackend::run() {
  switch (work_->advance()) {
    case LocalTurn::kWaits:
      return false;
    case LocalTurn::kMoved:
      break;
    case LocalTurn::kOver:
      end(Status::ok());
      break;
    case LocalTurn::kOthersRead:
      state_ = CallState::kLeaving;
      break;
    case LocalTurn::kFailed:
      end({Code::kInternal, "a rank of this host published addresses outside its memory; please report it."});
      break;
  }
  return true;
}

bool LocalBackend::run_gathered() {
  const LocalTurn turn = gathered_.advance();
  if (turn == LocalTurn::kOver) end(Status::ok());
  if (turn == LocalTurn::kFailed)
    end({Code::kInternal, "ranks of this host announced different sizes of one call; please report it."});
  return turn != LocalTurn::kWaits;
}

// The last peer first: ranks mostly go on in ascending order, so when it has come, the others have, too.
bool LocalBackend::have_arrived() {
  while (missing_ > 0 && call_.has_arrived(call_.peers[missing_ - 1])) --missing_;
  return missing_ == 0;
}

// The rank, as an index on the host, without which the call cannot go on; none if several may move it.
std::optional<size_t> LocalBackend::waits_for() const {
  // Few ranks that pass chunks are better off awake: 8 ranks on 2 cores took 0.67 ms for 1 MiB when each
  // arrival woke them, and 1.1 ms when only the last one did.
  const bool passes_chunks = state_ != CallState::kGathering && !work_->is_inline();
  if (passes_chunks && call_.ranks() <= kMostDirectRanks) return std::nullopt;
  switch (state_) {
    case CallState::kIdle:
    case CallState::kRunning:
      return std::nullopt;
    case CallState::kWaitingForBuffer:
      return one_shot_users_[call_.parity].one_left(*host_);
    case CallState::kPosted:
      return missing_ > 0 ? std::optional(call_.peers[missing_ - 1].index) : std::nullopt;
    case CallState::kLeaving: {
      const LocalPeer* const peer = call_.one_inside();
      return peer == nullptr ? std::nullopt : std::optional(peer->index);
    }
    case CallState::kGathering:
      return gathered_.waits_for();
  }
  return std::nullopt;
}

void LocalBackend::end(const Status& status) {
  if (!status.is_ok() && broken_.is_ok()) broken_ = status;
  state_ = CallState::kIdle;
  finished_.push_back({.id = call_.call.id, .status = status, .how = how_});
}

bool LocalBackend::prepare_sleep() {
  if (!finished_.empty()) return false;
  if (state_ == CallState::kIdle) return true;
  // Bounded: each round has found that the rank has come for which the round before wanted to wait.
  for (;;) {
    const std::optional<size_t> awaited = waits_for();
    host_->announce_sleep(awaited);
    if (advance()) return false;
    if (waits_for() == awaited) return true;
  }
}

void LocalBackend::wake_up() { host_->announce_waking(); }

// No buffer has been written to yet, because that begins only when all members have announced the call.
void LocalBackend::cancel(CallId, std::span<const int32_t>) {
  if (state_ == CallState::kIdle) return;  // the call has failed already
  RUEDA_CHECK(state_ == CallState::kWaitingForBuffer || state_ == CallState::kPosted ||
                  state_ == CallState::kGathering,
              "a call that all members have started cannot be cancelled");
  for (const LocalPeer& peer : call_.peers) host_->return_sequence(peer.index);
  if (state_ == CallState::kPosted && !work_->is_inline())
    one_shot_users_[call_.parity].clear();  // the one-shot buffer was free before
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
