#include "rueda/trace/flight_writer.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "rueda/base/log.h"
#include "rueda/base/thread.h"

namespace rueda::trace {
namespace {

// A handler has no other way to reach anything. Never closed: a late signal must not write to a descriptor
// that has another meaning by then.
std::atomic<int> signalled{-1};

void wake(int fd) {
  const uint64_t one = 1;
  (void)!::write(fd, &one, sizeof one);
}

void on_signal(int /*number*/) {
  const int before = errno;
  wake(signalled.load(std::memory_order_relaxed));
  errno = before;
}

void clear(int fd) {
  uint64_t count = 0;
  (void)!::read(fd, &count, sizeof count);
}

UniqueFd make_eventfd() { return UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

Status install(int number) {
  if (signalled < 0) signalled = make_eventfd().release();
  struct sigaction old {};
  if (signalled < 0 || ::sigaction(number, nullptr, &old) != 0)
    return {Code::kUnavailable, std::string("Cannot handle a signal: ") + std::strerror(errno) + "."};
  const bool is_ours = (old.sa_flags & SA_SIGINFO) == 0 && old.sa_handler == on_signal;
  const bool is_free = (old.sa_flags & SA_SIGINFO) == 0 && old.sa_handler == SIG_DFL;
  if (is_ours) return Status::ok();
  if (!is_free)
    return {Code::kInvalidArgument,
            "The program handles signal " + std::to_string(number) +
                " itself, so it writes no flight record; let RUEDA_FLIGHT_RECORD_SIGNAL name another one."};
  struct sigaction ours {};
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  ::sigaction(number, &ours, nullptr);
  return Status::ok();
}

}  // namespace

Status FlightWriter::start(const std::string& path, int signal) {
  const std::lock_guard lock(mutex_);
  if (path == path_ && signal == signal_ && thread_.joinable()) return Status::ok();
  stop_locked();
  path_ = path;
  signal_ = signal;
  const Status handled = signal == 0 ? Status::ok() : install(signal);
  requests_ = make_eventfd();
  end_ = make_eventfd();
  if (!requests_.is_open() || !end_.is_open())
    return {Code::kUnavailable, std::string("Cannot watch for stalls: ") + std::strerror(errno) + "."};
  const bool has_signal = signal != 0 && handled.is_ok();
  const int requests = requests_.get(), signals = has_signal ? signalled.load() : -1, end = end_.get();
  if (has_signal) clear(signals);  // of signals that came when nobody watched
  const Status started = start_thread(thread_, "the flight record", [this, path, requests, signals, end] {
    run(path, requests, signals, end);
  });
  return started.is_ok() ? handled : started;
}

void FlightWriter::stop() {
  const std::lock_guard lock(mutex_);
  stop_locked();
}

void FlightWriter::stop_locked() {
  if (thread_.joinable()) {
    wake(end_.get());
    thread_.join();
  }
  requests_.reset();
  end_.reset();
}

void FlightWriter::request() {
  const std::lock_guard lock(mutex_);
  if (requests_.is_open()) wake(requests_.get());
}

void FlightWriter::run(const std::string& path, int requests, int signals, int end) {
  std::array<pollfd, 3> waits = {{{requests, POLLIN, 0}, {signals, POLLIN, 0}, {end, POLLIN, 0}}};
  for (bool is_last = false; !is_last;) {
    if (::poll(waits.data(), waits.size(), -1) <= 0) continue;  // it blocks all signals: never for long
    const bool is_stall = waits[0].revents != 0, is_signal = waits[1].revents != 0;
    is_last = waits[2].revents != 0;
    if (is_stall) clear(requests);
    if (is_signal) clear(signals);
    if (!is_stall && !is_signal) continue;
    const Status written = recorder_.write_ring(path);
    if (written.is_ok())
      RUEDA_LOG(kWarning, std::string(is_signal ? "A signal asked for it" : "Ranks are stalled") +
                              ": the flight record of this rank is in " + path +
                              "; `rueda timeline summary` reads it.");
    else
      RUEDA_LOG(kError, written.why);
  }
}

}  // namespace rueda::trace
