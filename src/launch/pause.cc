#include "launch/pause.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "launch/outside_signals.h"
#include "launch/poll_set.h"
#include "launch/signals.h"

namespace rueda::launch {
namespace {

// What comes on stdin is of no interest, only its end.
bool has_ended(int fd) {
  std::array<char, 256> ignored;
  const ssize_t size = read(fd, ignored.data(), ignored.size());
  return size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace

int pause_for(Nanos pause, bool is_stdin_watched) {
  const Deadline deadline = Deadline::after(pause);
  int ended_by = 0;
  Signals signals;
  signals.block();  // the next try blocks them as well, so none is lost in between
  while (ended_by == 0 && !deadline.is_past()) {
    PollSet set;
    set.watch(signals.fd(), POLLIN, [&] {
      for (const int signal : signals.read()) {
        if (signal == SIGTSTP) kill(getpid(), SIGSTOP);
        if (ends_job(signal)) ended_by = signal;
      }
    });
    if (is_stdin_watched)
      set.watch(STDIN_FILENO, POLLIN, [&] {
        if (has_ended(STDIN_FILENO)) ended_by = SIGTERM;
      });
    set.wait(deadline);
  }
  return ended_by;
}

}  // namespace rueda::launch
