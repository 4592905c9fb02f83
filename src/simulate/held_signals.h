// SIGINT, SIGTERM and SIGHUP are held back while this is there, so that whoever they end can tidy up: it
// looks whether one has come, returns, and the signal takes effect when this goes. One thread.
#pragma once

#include <signal.h>

namespace rueda::simulate {

class HeldSignals {
 public:
  HeldSignals() { sigprocmask(SIG_BLOCK, &set(), &before_); }
  ~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  [[nodiscard]] static bool has_come() {
    sigset_t pending;
    sigpending(&pending);
    for (const int number : kNumbers)
      if (sigismember(&pending, number) == 1) return true;
    return false;
  }

 private:
  static constexpr int kNumbers[] = {SIGINT, SIGTERM, SIGHUP};
  static const sigset_t& set() {
    static const sigset_t all = [] {
      sigset_t made;
      sigemptyset(&made);
      for (const int number : kNumbers) sigaddset(&made, number);
      return made;
    }();
    return all;
  }

  sigset_t before_{};
};

}  // namespace rueda::simulate
