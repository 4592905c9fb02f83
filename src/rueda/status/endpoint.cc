#include "rueda/status/endpoint.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/socket.h"
#include "rueda/base/thread.h"
#include "rueda/base/unique_fd.h"
#include "rueda/status/folder.h"

namespace rueda::status {
namespace {

constexpr Nanos kRequestTime = kSecond;    // for a caller to say what it wants
constexpr Nanos kReplyTime = 5 * kSecond;  // and to take the answer
constexpr Nanos kTick = kSecond;
constexpr int kBacklog = 64;

Status trouble(const std::string& path) {
  return {Code::kUnavailable, "cannot make the socket " + path + ": " + std::strerror(errno) + "."};
}

// The name appears when the socket listens: who finds a socket that refuses may remove it.
Result<UniqueFd> listen_at(const std::string& path) {
  const std::string draft = path + ".new";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (draft.size() >= sizeof(address.sun_path))
    return Status(Code::kUnavailable,
                  "the path " + draft + " is too long for a socket; set XDG_RUNTIME_DIR.");
  std::memcpy(address.sun_path, draft.data(), draft.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return trouble(path);
  fd.close_on_fork();
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return trouble(path);
  if (chmod(draft.c_str(), S_IRUSR | S_IWUSR) == 0 && listen(fd.get(), kBacklog) == 0 &&
      rename(draft.c_str(), path.c_str()) == 0)
    return fd;
  Status status = trouble(path);
  unlink(draft.c_str());
  return status;
}

bool is_same_user(int fd) {
  const uid_t uid = peer_process(fd).uid;
  return uid == geteuid() || uid == 0;
}

class SocketEndpoint final : public Endpoint {
 public:
  SocketEndpoint(std::string path, UniqueFd listener, UniqueFd stop, Answer answer,
                 std::function<void()> tick)
      : path_(std::move(path)),
        listener_(std::move(listener)),
        stop_(std::move(stop)),
        answer_(std::move(answer)),
        tick_(std::move(tick)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~SocketEndpoint() override {
    ring(stop_);
    if (thread_.joinable()) thread_.join();
    if (path_.empty()) return;
    unlink(path_.c_str());
    remove_dead_sockets(path_.substr(0, path_.rfind('/')));  // other ranks of this job may have been killed
  }
  Status run() {
    return start_thread(thread_, "rueda status", [this] { loop(); });
  }
  [[nodiscard]] const std::string& path() const override { return path_; }
  void call_soon(std::function<void()> function) override {
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back(std::move(function));
    }
    ring(wake_);
  }

 private:
  void loop() {
    prctl(PR_SET_NAME, "rueda-status");
    Nanos next = monotonic_now();
    while (true) {
      std::array<pollfd, 3> polled{{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                    {.fd = listener_.get(), .events = POLLIN, .revents = 0},
                                    {.fd = wake_.get(), .events = POLLIN, .revents = 0}}};
      const bool is_woken = wait(polled, tick_ ? Deadline::at(next) : Deadline::after(kLongestTime));
      if (polled[0].revents != 0) return;
      if (is_woken && polled[1].revents != 0) serve();
      if (is_woken && polled[2].revents != 0) run_calls();
      if (tick_ && monotonic_now() >= next) {
        next = monotonic_now() + kTick;
        tick_();
      }
    }
  }
  void run_calls() {
    uint64_t rung = 0;
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &rung, sizeof(rung));
    std::vector<std::function<void()>> calls;
    {
      const std::lock_guard lock(mutex_);
      calls.swap(calls_);
    }
    for (const std::function<void()>& call : calls) call();
  }
  static void ring(const UniqueFd& event) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t rung = write(event.get(), &one, sizeof(one));
  }
  static bool wait(std::span<pollfd> polled, Deadline deadline) {
    return poll(polled.data(), polled.size(), deadline.timeout_ms()) > 0;
  }
  // Until the descriptor is ready, this object is to end, or the deadline has passed.
  bool wait_for(int fd, short events, Deadline deadline) {
    std::array<pollfd, 2> polled{
        {{.fd = stop_.get(), .events = POLLIN, .revents = 0}, {.fd = fd, .events = events, .revents = 0}}};
    return wait(polled, deadline) && polled[0].revents == 0 && polled[1].revents != 0;
  }
  void serve() {
    UniqueFd caller(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!caller.is_open()) return;
    caller.close_on_fork();
    if (!is_same_user(caller.get())) return;
    std::string request;
    const Deadline patience = Deadline::after(kRequestTime);
    while (request.find('\n') == std::string::npos) {
      std::array<char, kMaxRequest> piece{};
      if (request.size() >= kMaxRequest || !wait_for(caller.get(), POLLIN, patience)) return;
      const ssize_t got = recv(caller.get(), piece.data(), piece.size(), 0);
      if (got <= 0) return;
      request.append(piece.data(), static_cast<size_t>(got));
    }
    const std::string reply = answer_(request.substr(0, request.find('\n')));
    const Deadline until = Deadline::after(kReplyTime);
    size_t sent = 0;
    while (sent < reply.size() && wait_for(caller.get(), POLLOUT, until)) {
      const ssize_t more = send(caller.get(), reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
      if (more <= 0) return;
      sent += static_cast<size_t>(more);
    }
  }

  std::string path_;
  UniqueFd listener_, stop_;
  Answer answer_;
  std::function<void()> tick_;
  UniqueFd wake_;
  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;  // to be made by the thread; mutex_ is held
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::start(const std::string& folder, Answer answer,
                                                  std::function<void()> tick, std::string_view ending) {
  if (folder.empty()) {
    auto silent = std::make_unique<SocketEndpoint>("", UniqueFd(), UniqueFd(eventfd(0, EFD_CLOEXEC)),
                                                   std::move(answer), std::move(tick));
    if (Status status = silent->run(); !status.is_ok()) return status;
    return std::unique_ptr<Endpoint>(std::move(silent));
  }
  if (Status status = make_folder(folder); !status.is_ok()) return status;
  remove_dead_sockets(folder);
  const std::string path = (folder + "/" + socket_name()).append(ending);
  Result<UniqueFd> listener = listen_at(path);
  if (!listener.is_ok()) return listener.status();
  UniqueFd stop(eventfd(0, EFD_CLOEXEC));
  auto endpoint = std::make_unique<SocketEndpoint>(path, std::move(listener).value(), std::move(stop),
                                                   std::move(answer), std::move(tick));
  if (Status status = endpoint->run(); !status.is_ok()) return status;
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace rueda::status
