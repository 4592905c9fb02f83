#include "rueda/backend/mpi/init_watch.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "rueda/base/log.h"
#include "rueda/base/thread.h"

namespace rueda::backend::mpi {

InitWatch::InitWatch(Deadline deadline, std::function<void()> on_late)
    : deadline_(deadline), on_late_(std::move(on_late)) {
  // Without the thread, MPI_Init has no bound, as in every MPI program.
  const Status started = start_thread(thread_, "the deadline of MPI_Init", [this] { run(); });
  if (!started.is_ok()) RUEDA_LOG(kWarning, started.why);
}

InitWatch::~InitWatch() {
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

void InitWatch::run() {
  std::unique_lock lock(mutex_);
  while (!is_over_ && !deadline_.is_past())
    changed_.wait_for(lock, std::chrono::milliseconds(deadline_.timeout_ms()), [this] { return is_over_; });
  if (is_over_) return;
  lock.unlock();
  on_late_();
}

std::string init_is_late(const std::string& library) {
  return "MPI_Init of " + library +
         " has not returned within RUEDA_START_TIMEOUT, so some rank has not called it; set "
         "RUEDA_CPU_OPERATIONS=mpi on all ranks (-x RUEDA_CPU_OPERATIONS of Open MPI's mpirun), let all of "
         "them call init, or raise RUEDA_START_TIMEOUT. This process ends, because MPI_Init cannot be "
         "interrupted.";
}

void end_late_init(const std::string& library) {
  RUEDA_LOG(kError, init_is_late(library));
  _exit(EXIT_FAILURE);
}

}  // namespace rueda::backend::mpi
