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
struct MpiBackend::CallInFlight {
  Call call;
  Packing packing;
  std::optional<Transfer> transfer;  // once the call is posted
};

MpiBackend::MpiBackend(std::shared_ptr<Process> process, Team team, MpiOptions options)
    : process_(process), team_(team), options_(options), communicators_(std::move(process), std::move(team)) {
  for (size_t i = 0; i < kCalls; ++i) idle_.push_back(std::make_unique<CallInFlight>());
}

MpiBackend::~MpiBackend() {
  if (!running_.empty()) abandon();
}

bool MpiBackend::accepts(const Group& group, const schedule::Spec& spec, const Memory& memory) const {
  const bool is_adasum = is_reduction(spec.what) && spec.op == ReduceOp::kAdasum;
  return group.size() > 1 && memory.kind != MemoryKind::kDevice && !is_adasum;
}

void MpiBackend::start(const Call& call) {
  RUEDA_CHECK(!call.may_be_cancelled, "MPI cannot cancel a call");
  if (!broken_.is_ok()) {
    failed_.push_back(Done{.id = call.id, .status = broken_});
    return;
  }
  RUEDA_CHECK(!idle_.empty(), "the backend has no room for this call");
  running_.push_back(std::move(idle_.back()));
  idle_.pop_back();
  running_.back()->call = call;
}

Status MpiBackend::pack(CallInFlight& in_flight) {
  if (in_flight.call.spec.what == Collective::kBarrier) return Status::ok();
  Status packed = in_flight.packing.pack(in_flight.call, true);
  if (packed.is_ok()) in_flight.call.note(Activity::kTransfer);
  return packed;
}

Result<bool> MpiBackend::begin(CallInFlight& in_flight) {
  const schedule::Spec& spec = in_flight.call.spec;
  const Result<std::optional<Comm>> comm = communicators_.find(*in_flight.call.group);
  if (!comm.is_ok()) return in_operation(comm.status());
  if (!comm.value()) return false;
  Result<Op> op = Op{};
  if (is_reduction(spec.what)) op = ops_.find(process_->library(), spec.op, spec.dtype);
  if (!op.is_ok()) return op.status();
  if (Status s = pack(in_flight); !s.is_ok()) return s;
  const auto element = static_cast<int64_t>(size_of(spec.dtype));
  in_flight.transfer.emplace(TransferSpec{
      .spec = &spec,
      .me = in_flight.call.group->me,
      .size = in_flight.call.group->size(),
      .comm = *comm.value(),
      .op = op.value(),
      .input = const_cast<std::byte*>(in_flight.packing.input()),  // the packed copy, which is ours
      .output = in_flight.packing.output(),
      .most_elements = std::clamp<int64_t>(options_.chunk_bytes / element, 1, INT_MAX)});
  return true;
}

bool MpiBackend::progress(std::vector<Done>& done) {
  bool moved = !failed_.empty();
  std::ranges::move(std::exchange(failed_, {}), std::back_inserter(done));
  if (communicators_.is_making()) return moved;
  for (size_t i = 0; i < running_.size();) {
    CallInFlight& in_flight = *running_[i];
    const bool is_new = !in_flight.transfer;
    const Result<bool> begun = is_new ? begin(in_flight) : Result<bool>(true);
    if (begun.is_ok() && !begun.value()) break;  // later calls are posted after this one
    const Result<bool> is_done = begun.is_ok() ? in_flight.transfer->progress(process_->library()) : begun;
    if (is_done.is_ok() && !is_done.value()) {
      moved = moved || is_new;
      if (!in_flight.transfer->is_posted()) break;
      ++i;
      continue;
    }
    std::unique_ptr<CallInFlight> ended = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
    end(std::move(ended), is_done.status());
    moved = true;
    if (!broken_.is_ok()) break;
  }
  std::ranges::move(std::exchange(failed_, {}), std::back_inserter(done));
  return moved;
}

void MpiBackend::end(std::unique_ptr<CallInFlight> in_flight, const Status& status) {
  const Call& call = in_flight->call;
  Done done{.id = call.id, .status = status, .how = "mpi"};
  if (status.is_ok()) {
    const schedule::Spec& spec = call.spec;
    if (is_reduction(spec.what) && !spec.scale.is_identity())
      kernels::scale(spec.dtype, in_flight->packing.output(), in_flight->packing.output(),
                     static_cast<size_t>(elements_out(call)), spec.scale);
    if (spec.what != Collective::kBarrier) in_flight->packing.unpack(call);
    in_flight->transfer.reset();
    idle_.push_back(std::move(in_flight));
  } else {
    done.status = in_operation(status);
    running_.push_back(std::move(in_flight));  // its memory is kept
    abort(done.status);
    return;
  }
  failed_.push_back(std::move(done));
}

// The calls that MPI has begun keep their memory for good.
void MpiBackend::abandon() {
  process_->abandon();
  for (std::unique_ptr<CallInFlight>& in_flight : running_)
    if (in_flight->transfer) keep_until_exit(std::move(in_flight));
  running_.clear();
}

void MpiBackend::abort(const Status& why) {
  RUEDA_CHECK(!why.is_ok(), "an abort needs a reason");
  if (broken_.is_ok()) broken_ = why;
  for (const std::unique_ptr<CallInFlight>& in_flight : running_)
    failed_.push_back(Done{.id = in_flight->call.id, .status = why, .how = "mpi"});
  const bool is_posted =
      std::ranges::any_of(running_, [](const auto& in_flight) { return in_flight->transfer.has_value(); });
  // Without one of its ranks, MPI would wait in its next collective, and in MPI_Finalize, for good.
  if (is_posted || communicators_.is_making() || why.code == Code::kPeerLost) return abandon();
  running_.clear();
}

}  // namespace rueda::backend::mpi
