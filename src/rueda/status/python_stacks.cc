#include "rueda/status/python_stacks.h"

#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <mutex>

namespace rueda::status {
namespace {

constexpr Nanos kLockTime = 500 * kMillisecond;  // a hundred switch intervals of the interpreter
constexpr size_t kMaxStacks = 256 << 10;

struct CaptureState {
  std::mutex mutex;
  PythonSource source;
  pid_t owner = 0;                 // a forked child has neither the thread nor files of its own
  void (*handler)(int) = nullptr;  // that faulthandler has installed
  bool is_asked = false;           // and not answered yet
};
CaptureState& state() {
  static auto* const instance = new CaptureState;  // never freed: threads may outlive static destruction
  return *instance;
}

void (*handler_of(int signal))(int) {
  struct sigaction now {};
  return signal > 0 && sigaction(signal, nullptr, &now) == 0 ? now.sa_handler : SIG_DFL;
}

// Takes what the thread has answered until the deadline. True if it has.
bool take_answer(int fd, Deadline deadline) {
  pollfd polled{.fd = fd, .events = POLLIN, .revents = 0};
  while (true) {
    const int ready = poll(&polled, 1, deadline.timeout_ms());
    if (ready < 0 && errno == EINTR && !deadline.is_past()) continue;
    if (ready <= 0) return false;
    std::array<char, 64> bytes{};
    return read(fd, bytes.data(), bytes.size()) > 0;
  }
}

std::string text_of(int fd) {
  struct stat about {};
  if (fstat(fd, &about) != 0) return {};
  std::string text(std::min(static_cast<size_t>(about.st_size), kMaxStacks), '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

bool ask_thread(CaptureState& s, Deadline deadline) {
  const Deadline patience = Deadline::at(std::min(deadline.when(), monotonic_now() + kLockTime));
  // An answer to an earlier request that came too late is old.
  if (s.is_asked && take_answer(s.source.done_fd, Deadline::at(0))) s.is_asked = false;
  if (!s.is_asked) {
    if (write(s.source.ask_fd, "?", 1) != 1) return false;
    s.is_asked = true;
  }
  if (!take_answer(s.source.done_fd, patience)) return false;
  s.is_asked = false;
  return true;
}

bool raise_signal(const PythonSource& source) {
  if (ftruncate(source.without_lock_fd, 0) != 0 || lseek(source.without_lock_fd, 0, SEEK_SET) != 0)
    return false;
  sigset_t wanted, before;
  sigemptyset(&wanted);
  sigaddset(&wanted, source.signal);
  pthread_sigmask(SIG_UNBLOCK, &wanted, &before);
  // A signal that a thread sends to itself is handled before this returns.
  const bool is_raised = pthread_kill(pthread_self(), source.signal) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return is_raised;
}

}  // namespace

Status set_python_source(const PythonSource& source) {
  void (*const handler)(int) = handler_of(source.signal);
  if (source.ask_fd < 0 || source.done_fd < 0 || source.with_lock_fd < 0 || source.without_lock_fd < 0)
    return {Code::kInvalidArgument, "rueda_set_python_stacks: a descriptor is missing."};
  if (source.signal != 0 && (handler == SIG_DFL || handler == SIG_IGN))
    return {Code::kInvalidArgument, "rueda_set_python_stacks: signal " + std::to_string(source.signal) +
                                        " has no handler; register it with faulthandler first."};
  CaptureState& s = state();
  const std::lock_guard lock(s.mutex);
  s.source = source;
  s.owner = getpid();
  s.handler = handler;
  s.is_asked = false;
  return Status::ok();
}

PythonText capture_python(Deadline deadline) {
  CaptureState& s = state();
  const std::lock_guard lock(s.mutex);
  PythonText out;
  out.thread = s.source.thread;
  if (s.source.ask_fd < 0 || s.owner != getpid()) {
    out.missing = "this process has no front end of Python";
  } else if (ask_thread(s, deadline)) {
    out.has_lock = true;
    out.text = text_of(s.source.with_lock_fd);
  } else if (s.source.signal == 0) {
    out.missing = "a thread holds the interpreter's lock, and no real-time signal was free";
  } else if (handler_of(s.source.signal) != s.handler) {
    out.missing = "the program has taken signal " + std::to_string(s.source.signal) +
                  ", which rueda uses for stacks while a thread holds the interpreter's lock";
  } else if (raise_signal(s.source)) {
    out.text = text_of(s.source.without_lock_fd);
  } else {
    out.missing = "the file for the stacks cannot be written";
  }
  if (out.text.empty() && out.missing.empty()) out.missing = "Python wrote nothing";
  return out;
}

}  // namespace rueda::status
