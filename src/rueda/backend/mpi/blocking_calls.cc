#include "rueda/backend/mpi/blocking_calls.h"

#include <algorithm>
#include <climits>
#include <numeric>
#include <thread>
#include <utility>

#include "rueda/base/check.h"
#include "rueda/base/thread.h"

namespace rueda::backend::mpi {
namespace {

struct Parts {
  std::vector<int> counts, begins;
};

Parts parts_of(const std::vector<int64_t>& counts) {
  Parts parts;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    parts.counts.push_back(static_cast<int>(count));
    parts.begins.push_back(static_cast<int>(begin));
    begin += count;
  }
  return parts;
}

Status exchange(Library& library, const BlockingCall& call, const DeviceRun& run,
                const std::vector<int64_t>& matrix) {
  const auto n = static_cast<size_t>(call.size), me = static_cast<size_t>(call.me);
  std::vector<int64_t> given, taken;
  for (size_t peer = 0; peer < n; ++peer) {
    given.push_back(matrix[me * n + peer]);
    taken.push_back(matrix[peer * n + me]);
  }
  const Parts give = parts_of(given), take = parts_of(taken);
  return library.alltoallv({run.input, give.counts.data(), give.begins.data()},
                           {run.output, take.counts.data(), take.begins.data()}, call.terms);
}

Status run_one(Library& library, const BlockingCall& call, const DeviceRun& run,
               const std::vector<int64_t>& counts) {
  Terms terms = call.terms;
  switch (call.what) {
    case Collective::kAllreduce:
      return run.count == 0 ? Status::ok()
                            : library.allreduce(run.output, static_cast<int>(run.count), terms);
    case Collective::kBroadcast:
      terms.peer = call.root;
      return run.count == 0 ? Status::ok() : library.bcast(run.output, static_cast<int>(run.count), terms);
    case Collective::kAllgather: {
      const Parts parts = parts_of(counts);
      return library.allgatherv(run.input, parts.counts[static_cast<size_t>(call.me)],
                                {run.output, parts.counts.data(), parts.begins.data()}, terms);
    }
    case Collective::kReducescatter:
      return library.reduce_scatter(run.input, run.output, parts_of(counts).counts.data(), terms);
    case Collective::kAlltoall:
      return exchange(library, call, run, counts);
    case Collective::kBarrier:
    case Collective::kJoin:
      break;
  }
  RUEDA_CHECK(false, "such a call is not run in device memory");
  return Status::ok();
}

}  // namespace

bool counts_fit(const schedule::Spec& spec) {
  const int64_t all = std::accumulate(spec.counts.begin(), spec.counts.end(), int64_t{0});
  return std::max(all, spec.count) <= INT_MAX / 2;  // packed tensors have gaps
}

Status run(Library& library, const BlockingCall& call) {
  for (size_t i = 0; i < call.runs.size(); ++i)
    if (const Status s = run_one(library, call, call.runs[i], call.counts[i]); !s.is_ok()) return s;
  return Status::ok();
}

Status Worker::begin(std::function<Status()> work) {
  RUEDA_CHECK(!is_running_, "a worker does one thing at a time");
  if (shared_ == nullptr) {
    auto shared = std::make_shared<Shared>();
    std::thread thread;
    const Status started = start_thread(thread, "MPI in GPU memory", [shared] { serve(shared); });
    if (!started.is_ok()) return started;
    thread.detach();  // after a loss it may stay inside MPI
    shared_ = std::move(shared);
  }
  const std::lock_guard lock(shared_->mutex);
  shared_->work = std::move(work);
  shared_->changed.notify_all();
  is_running_ = true;
  return Status::ok();
}

std::optional<Status> Worker::take_outcome() {
  if (!is_running_) return std::nullopt;
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->outcome) return std::nullopt;
  is_running_ = false;
  return std::exchange(shared_->outcome, std::nullopt);
}

Worker::~Worker() {
  if (shared_ == nullptr) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->is_over = true;
  shared_->changed.notify_all();
}

void Worker::serve(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->changed.wait(lock, [&] { return shared->is_over || shared->work != nullptr; });
    if (shared->work == nullptr) return;
    const std::function<Status()> work = std::exchange(shared->work, nullptr);
    lock.unlock();
    Status outcome = work();
    lock.lock();
    shared->outcome = std::move(outcome);
  }
}

}  // namespace rueda::backend::mpi
