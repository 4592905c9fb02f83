#include "rueda/backend/mpi/mpi.h"

#include <algorithm>
#include <climits>
#include <optional>
#include <utility>

#include "rueda/backend/mpi/transfer.h"
#include "rueda/backend/packing.h"
#include "rueda/base/check.h"
#include "rueda/base/keep.h"
#include "rueda/kernels/kernels.h"

namespace rueda::backend::mpi {
namespace {

// kPeerLost: the job waits for the verdict of rank 0, which may name a lost rank.
Status in_operation(const Status& status) { return {Code::kPeerLost, status.why}; }

int64_t elements_out(const Call& call) {
  int64_t count = 0;
  for (const Segment& segment : call.segments)
    count += elements_taken(call.spec.what, segment, call.group->me, call.group->size());
  return count;
}

}  // namespace

// A call and its memory, which is used again by later calls.
struct MpiBackend::Slot {
  Call call;
  Packing packing;
  std::optional<Transfer> transfer;  // once the call is posted
};

MpiBackend::MpiBackend(std::shared_ptr<Process> process, Team team, MpiOptions options)
    : process_(process), team_(team), options_(options), communicators_(std::move(process), std::move(team)) {
  for (size_t i = 0; i < kCalls; ++i) idle_.push_back(std::make_unique<Slot>());
}

MpiBackend::~MpiBackend() {
  if (!running_.empty()) abandon();
}

bool MpiBackend::accepts(const Group& group, const schedule::Spec& spec, const Memory& memory) const {
  const bool is_adasum = is_reduction(spec.what) && spec.op == ReduceOp::kAdasum;
  return group.size() > 1 && memory.kind != MemoryKind::kDevice && !is_adasum;
}

void MpiBackend::start(const Call& call) {
  RUEDA_CHECK(!call.may_be_taken_back, "MPI cannot take a call back");
  if (!broken_.is_ok()) {
    failed_.push_back(Done{.id = call.id, .status = broken_});
    return;
  }
  RUEDA_CHECK(!idle_.empty(), "the backend has no room for this call");
  running_.push_back(std::move(idle_.back()));
  idle_.pop_back();
  running_.back()->call = call;
}

Status MpiBackend::pack(Slot& slot) {
  if (slot.call.spec.what == Collective::kBarrier) return Status::ok();
  Status packed = slot.packing.pack(slot.call, true);
  if (packed.is_ok()) slot.call.note(Activity::kTransfer);
  return packed;
}

Result<bool> MpiBackend::begin(Slot& slot) {
  const schedule::Spec& spec = slot.call.spec;
  const Result<std::optional<Comm>> comm = communicators_.find(*slot.call.group);
  if (!comm.is_ok()) return in_operation(comm.status());
  if (!comm.value()) return false;
  Result<Op> op = Op{};
  if (is_reduction(spec.what)) op = ops_.find(process_->library(), spec.op, spec.dtype);
  if (!op.is_ok()) return op.status();
  if (Status s = pack(slot); !s.is_ok()) return s;
  const auto element = static_cast<int64_t>(size_of(spec.dtype));
  slot.transfer.emplace(
      TransferSpec{.spec = &spec,
                   .me = slot.call.group->me,
                   .size = slot.call.group->size(),
                   .comm = *comm.value(),
                   .op = op.value(),
                   .input = const_cast<std::byte*>(slot.packing.input()),  // the packed copy, which is ours
                   .output = slot.packing.output(),
                   .most_elements = std::clamp<int64_t>(options_.chunk_bytes / element, 1, INT_MAX)});
  return true;
}

bool MpiBackend::progress(std::vector<Done>& done) {
  bool moved = !failed_.empty();
  std::ranges::move(std::exchange(failed_, {}), std::back_inserter(done));
  if (communicators_.is_making()) return moved;
  for (size_t i = 0; i < running_.size();) {
    Slot& slot = *running_[i];
    const bool is_new = !slot.transfer;
    const Result<bool> begun = is_new ? begin(slot) : Result<bool>(true);
    if (begun.is_ok() && !begun.value()) break;  // later calls are posted after this one
    const Result<bool> is_done = begun.is_ok() ? slot.transfer->progress(process_->library()) : begun;
    if (is_done.is_ok() && !is_done.value()) {
      moved = moved || is_new;
      if (!slot.transfer->is_posted()) break;
      ++i;
      continue;
    }
    std::unique_ptr<Slot> ended = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
    end(std::move(ended), is_done.status());
    moved = true;
    if (!broken_.is_ok()) break;
  }
  std::ranges::move(std::exchange(failed_, {}), std::back_inserter(done));
  return moved;
}

void MpiBackend::end(std::unique_ptr<Slot> slot, const Status& status) {
  const Call& call = slot->call;
  Done done{.id = call.id, .status = status, .how = "mpi"};
  if (status.is_ok()) {
    const schedule::Spec& spec = call.spec;
    if (is_reduction(spec.what) && !spec.scale.is_identity())
      kernels::scale(spec.dtype, slot->packing.output(), slot->packing.output(),
                     static_cast<size_t>(elements_out(call)), spec.scale);
    if (spec.what != Collective::kBarrier) slot->packing.unpack(call);
    slot->transfer.reset();
    idle_.push_back(std::move(slot));
  } else {
    done.status = in_operation(status);
    running_.push_back(std::move(slot));  // its memory is kept
    abort(done.status);
    return;
  }
  failed_.push_back(std::move(done));
}

// The calls that MPI has begun keep their memory for good.
void MpiBackend::abandon() {
  process_->abandon();
  for (std::unique_ptr<Slot>& slot : running_)
    if (slot->transfer) keep_until_exit(std::move(slot));
  running_.clear();
}

void MpiBackend::abort(const Status& why) {
  RUEDA_CHECK(!why.is_ok(), "an abort needs a reason");
  if (broken_.is_ok()) broken_ = why;
  for (const std::unique_ptr<Slot>& slot : running_)
    failed_.push_back(Done{.id = slot->call.id, .status = why, .how = "mpi"});
  const bool is_posted =
      std::ranges::any_of(running_, [](const auto& slot) { return slot->transfer.has_value(); });
  // Without one of its ranks, MPI would wait in its next collective, and in MPI_Finalize, for good.
  if (is_posted || communicators_.is_making() || why.code == Code::kPeerLost) return abandon();
  running_.clear();
}

}  // namespace rueda::backend::mpi
