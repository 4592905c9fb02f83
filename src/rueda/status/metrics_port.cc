#include "rueda/status/metrics_port.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "rueda/base/socket.h"
#include "rueda/base/thread.h"
#include "rueda/base/unique_fd.h"
#include "rueda/status/scrape.h"

namespace rueda::status {
namespace {

constexpr int kWaitingCallers = 16;           // of the kernel's queue
constexpr Nanos kPause = 100 * kMillisecond;  // when no connection can be accepted
constexpr size_t kPollFixed = 2;              // the descriptors before those of callers

bool would_wait(ssize_t got) { return got < 0 && (errno == EAGAIN || errno == EINTR); }

// One connection: it sends a request, takes the reply, and ends.
class HttpConnection {
 public:
  HttpConnection(UniqueFd fd, Deadline until) : fd_(std::move(fd)), until_(until) {}
  [[nodiscard]] pollfd polled() const {
    const bool is_sending = !reply_.empty() && sent_ < reply_.size();
    return {.fd = fd_.get(), .events = static_cast<short>(is_sending ? POLLOUT : POLLIN), .revents = 0};
  }
  [[nodiscard]] Deadline until() const { return until_; }
  // Goes on as far as the socket allows. False: the connection has ended.
  bool go_on(const std::string& token, const MetricsPort::Text& text) {
    if (reply_.empty() && !hear(token, text)) return false;
    if (reply_.empty()) return true;
    return sent_ < reply_.size() ? speak() : await_end();
  }

 private:
  bool hear(const std::string& token, const MetricsPort::Text& text) {
    std::array<char, 2048> piece{};
    const ssize_t got = recv(fd_.get(), piece.data(), piece.size(), 0);
    if (got <= 0) return would_wait(got);
    heard_.append(piece.data(), static_cast<size_t>(got));
    if (heard_.size() > kMaxHeadBytes)
      reply_ = http_response(431);
    else if (has_whole_head(heard_))
      reply_ = reply(verdict_on(heard_, token), text);
    return true;
  }
  static std::string reply(int status, const MetricsPort::Text& text) {
    return status == 200 ? http_response(status, text()) : http_response(status);
  }
  bool speak() {
    const ssize_t more = send(fd_.get(), reply_.data() + sent_, reply_.size() - sent_, MSG_NOSIGNAL);
    if (more < 0) return would_wait(more);
    sent_ += static_cast<size_t>(more);
    if (sent_ == reply_.size()) shutdown(fd_.get(), SHUT_WR);
    return true;
  }
  // A socket closed with bytes unread would take the reply away from the caller.
  bool await_end() {
    std::array<char, 2048> rest{};
    const ssize_t got = recv(fd_.get(), rest.data(), rest.size(), 0);
    return got > 0 || would_wait(got);
  }

  UniqueFd fd_;
  Deadline until_;
  std::string heard_, reply_;
  size_t sent_ = 0;
};

class OpenMetricsPort final : public MetricsPort {
 public:
  OpenMetricsPort(UniqueFd listener, std::string token, Text text, Nanos caller_time)
      : listener_(std::move(listener)),
        stop_(eventfd(0, EFD_CLOEXEC)),
        token_(std::move(token)),
        text_(std::move(text)),
        caller_time_(caller_time),
        port_(own_address(listener_.get()).port()) {}
  ~OpenMetricsPort() override {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t rung = write(stop_.get(), &one, sizeof(one));
    if (thread_.joinable()) thread_.join();
  }
  Status run() {
    return start_thread(thread_, "the port for metrics", [this] { loop(); });
  }
  [[nodiscard]] uint16_t port() const override { return port_; }

 private:
  void loop() {
    prctl(PR_SET_NAME, "rueda-metrics");
    std::vector<pollfd> polled;
    while (true) {
      const Nanos now = monotonic_now();
      std::erase_if(connections_, [&](const HttpConnection& one) { return one.until().is_past(now); });
      const bool is_pausing = now < pause_end_;
      polled.assign({{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                     {.fd = is_pausing ? -1 : listener_.get(), .events = POLLIN, .revents = 0}});
      Deadline next = is_pausing ? Deadline::at(pause_end_) : Deadline::after(kLongestTime);
      for (const HttpConnection& one : connections_) {
        polled.push_back(one.polled());
        next = Deadline::at(std::min(next.when(), one.until().when()));
      }
      if (poll(polled.data(), polled.size(), next.timeout_ms()) <= 0) continue;
      if (polled[0].revents != 0) return;
      serve(polled);
      if (polled[1].revents != 0) accept_callers();
    }
  }
  void serve(const std::vector<pollfd>& polled) {
    size_t at = kPollFixed;
    std::erase_if(connections_, [&](HttpConnection& one) {
      return polled[at++].revents != 0 && !one.go_on(token_, text_);
    });
  }
  void accept_callers() {
    for (size_t i = 0; i < kMaxCallers; ++i) {
      UniqueFd fd = accept_caller(listener_.get());
      if (!fd.is_open()) {
        if (errno != EAGAIN && errno != ECONNABORTED) pause_end_ = monotonic_now() + kPause;
        return;
      }
      if (connections_.size() == kMaxCallers) connections_.erase(connections_.begin());
      connections_.emplace_back(std::move(fd), Deadline::after(caller_time_));
    }
  }

  UniqueFd listener_, stop_;
  const std::string token_;
  const Text text_;
  const Nanos caller_time_;
  const uint16_t port_;
  std::vector<HttpConnection> connections_;  // the oldest first; of the thread, like pause_end_
  Nanos pause_end_ = 0;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<MetricsPort>> MetricsPort::open(const SocketAddress& at, std::string token, Text text,
                                                       Nanos caller_time) {
  Result<UniqueFd> listener = open_listening(at, kWaitingCallers);
  if (!listener.is_ok()) return listener.status();
  auto opened = std::make_unique<OpenMetricsPort>(std::move(listener).value(), std::move(token),
                                                  std::move(text), caller_time);
  if (Status status = opened->run(); !status.is_ok()) return status;
  return std::unique_ptr<MetricsPort>(std::move(opened));
}

}  // namespace rueda::status
