// A bound for MPI_Init, which waits for the other ranks and cannot be interrupted. A rank that does not come,
// for example because RUEDA_CPU_OPERATIONS=mpi did not reach its host, would let this one wait forever.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "rueda/base/clock.h"

namespace rueda::backend::mpi {

class InitWatch {
 public:
  // Calls on_late once, in a thread of its own, if this object still lives at the deadline.
  InitWatch(Deadline deadline, std::function<void()> on_late);
  ~InitWatch();
  InitWatch(const InitWatch&) = delete;
  InitWatch& operator=(const InitWatch&) = delete;

 private:
  void run();

  const Deadline deadline_;
  const std::function<void()> on_late_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::jthread thread_;  // the last member: it joins before anything that it uses is destroyed
};

// library: as it describes itself.
std::string init_is_late(const std::string& library);
// Logs the sentence, and ends the process: MPI does the same where MPI_Init fails.
[[noreturn]] void end_late_init(const std::string& library);

}  // namespace rueda::backend::mpi
