#include "launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

namespace rueda::launch {

void Signals::block() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGTSTP}) {
    struct sigaction current {};
    sigaction(signal, nullptr, &current);
    const bool is_ignored = current.sa_handler == SIG_IGN;  // nohup and background jobs of plain shells
    if (signal == SIGCHLD || !is_ignored) sigaddset(&signals, signal);
  }
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // beyond ulimit -f, write() then fails with an errno
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  fd_ = UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::vector<int> Signals::read() {
  std::vector<int> numbers;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == sizeof info)
    if (info.ssi_signo != SIGCHLD) numbers.push_back(static_cast<int>(info.ssi_signo));
  return numbers;
}

void Signals::unblock() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace rueda::launch
