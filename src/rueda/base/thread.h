// Starts the threads of the library in the process of the application.
#pragma once

#include <pthread.h>

#include <csignal>
#include <string>
#include <system_error>
#include <utility>

#include "rueda/base/status.h"

namespace rueda {

// thread: a std::thread or std::jthread. It blocks all signals, which are for the threads of the application;
// Python, for example, expects them in its main thread. purpose: "the engine", for the error message.
template <class Thread, class Work>
Status start_thread(Thread& thread, const std::string& purpose, Work work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    thread = Thread(std::move(work));
  } catch (const std::system_error& error) {
    status = {Code::kUnavailable,
              "cannot start a thread for " + purpose + " (" + error.code().message() +
                  "); raise the limit on processes (ulimit -u, or pids.max of the cgroup)."};
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace rueda
