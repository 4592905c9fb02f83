#include "preflight/captured_job.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "launch/job_runner.h"
#include "launch/processes.h"

namespace rueda::preflight {
namespace {

constexpr Nanos kEndLimit = 8 * kSecond;  // the launcher ends its ranks in less

[[noreturn]] void run_job(launch::RunOptions options, int out, int err, pid_t parent) {
  // The launcher ends its ranks on SIGTERM, and so leaves nothing behind when this command is killed.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool is_set = getppid() == parent && dup2(null, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
                      dup2(err, STDERR_FILENO) >= 0;
  const int status = is_set ? launch::JobRunner(std::move(options)).run() : 1;
  std::fflush(nullptr);
  _exit(status);
}

// Appends what there is to read; closes the descriptor at its end.
void read_some(UniqueFd& from, std::string& text) {
  std::array<char, 65536> chunk;
  const ssize_t size = read(from.get(), chunk.data(), chunk.size());
  if (size > 0)
    text.append(chunk.data(), static_cast<size_t>(size));
  else if (size == 0 || (errno != EINTR && errno != EAGAIN))
    from.reset();
}

}  // namespace

CapturedJob::CapturedJob(launch::RunOptions options) {
  Result<launch::Pipe> out = launch::make_pipe(), err = launch::make_pipe();
  if (!out.is_ok() || !err.is_ok()) {
    err_ = "no pipe could be made; raise the limit of open files";
    return;
  }
  std::fflush(nullptr);  // else the child would write our buffered output once more
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) run_job(std::move(options), out.value().write.get(), err.value().write.get(), parent);
  if (pid_ < 0) {
    err_ = "no process could be made; raise the limit of processes";
    return;
  }
  out_fd_ = std::move(out.value().read);
  err_fd_ = std::move(err.value().read);
}

CapturedJob::CapturedJob(CapturedJob&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_fd_(std::move(other.out_fd_)),
      err_fd_(std::move(other.err_fd_)),
      out_(std::move(other.out_)),
      err_(std::move(other.err_)) {}

CapturedJob::~CapturedJob() { end(); }

bool CapturedJob::read_all(Deadline deadline) {
  while (out_fd_.is_open() || err_fd_.is_open()) {
    if (deadline.is_past()) {
      end();
      return false;
    }
    // poll ignores negative descriptors
    std::array<pollfd, 2> readable = {
        pollfd{.fd = out_fd_.is_open() ? out_fd_.get() : -1, .events = POLLIN, .revents = 0},
        pollfd{.fd = err_fd_.is_open() ? err_fd_.get() : -1, .events = POLLIN, .revents = 0}};
    if (poll(readable.data(), readable.size(), deadline.timeout_ms()) <= 0) continue;
    if (readable[0].revents != 0) read_some(out_fd_, out_);
    if (readable[1].revents != 0) read_some(err_fd_, err_);
  }
  end();
  return true;
}

void CapturedJob::end() {
  if (pid_ < 0) return;
  const Deadline limit = Deadline::after(kEndLimit);
  const bool is_reading_over = !out_fd_.is_open() && !err_fd_.is_open();
  if (!is_reading_over) kill(pid_, SIGTERM);
  out_fd_.reset();
  err_fd_.reset();
  while (waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (limit.is_past()) kill(pid_, SIGKILL);
    usleep(2000);
  }
  pid_ = -1;
}

}  // namespace rueda::preflight
