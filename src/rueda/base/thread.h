// Starting the library's threads inside somebody else's process.
#pragma once

#include <pthread.h>

#include <csignal>
#include <string>
#include <system_error>
#include <utility>

#include "rueda/base/status.h"

namespace rueda {

// thread: a std::thread or std::jthread. It takes no signals: they belong to the application's threads
// (Python, say, wants its main thread interrupted). purpose: "the engine"; for the sentence where no thread
// is to be had.
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
              "this machine gives no thread for " + purpose + " (" + error.code().message() +
                  "); raise the limit on processes (ulimit -u, or pids.max of the cgroup)."};
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace rueda
