// One call in device memory as blocking functions of MPI, and the thread that runs them. The nonblocking
// collectives of Open MPI do not take device memory, while those that block do; and a function that blocks
// waits for a lost member for good, which the engine's thread must never do.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "rueda/backend/device_packing.h"
#include "rueda/backend/mpi/library.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/schedule/step.h"

namespace rueda::backend::mpi {

struct BlockingCall {
  Collective what = Collective::kAllreduce;
  Rank me = 0, size = 1, root = -1;
  size_t element_bytes = 1;
  Terms terms;
  // The tensors, one after the other. Allreduce: input and output are the same. Their counts fit in int.
  std::vector<DeviceRun> runs;
  std::vector<std::vector<int64_t>> counts;  // [runs]; runs refer to them
};

// Whether all counts that MPI would see fit in int. The same on every member. Pure.
bool counts_fit(const schedule::Spec& spec);

// Runs the functions of one call. Any thread, if MPI grants kMultiple.
Status run(Library& library, const BlockingCall& call);

// A thread that does one piece of work after the other. The owner is one thread.
class Worker {
 public:
  // Starts the thread when it is first needed.
  Status begin(std::function<Status()> work);
  // The outcome of the work, once; empty while it runs.
  std::optional<Status> take_outcome();
  [[nodiscard]] bool is_running() const { return is_running_; }
  // Ends the thread. If it is at work it is left alone, with what the work owns.
  ~Worker();

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<Status()> work;
    std::optional<Status> outcome;
    bool is_over = false;
  };
  static void serve(const std::shared_ptr<Shared>& shared);
  std::shared_ptr<Shared> shared_;
  bool is_running_ = false;
};

}  // namespace rueda::backend::mpi
