#include "rueda/transport/tcp/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "rueda/transport/connector.h"
#include "rueda/transport/tcp/channel.h"

namespace rueda::transport {
namespace {

constexpr int kTcpBacklog = 1024;
// How often channels look at the age of the last acknowledgement.
constexpr Nanos kLivenessPeriod = kSecond;
constexpr int kLooksPerTimeout = 8;  // at least
constexpr Nanos kPushPeriod = 4 * kMillisecond;

// Send and receive buffers are left alone, because setting them switches the kernel's autotuning off.
// TCP_USER_TIMEOUT is not used, because it also ends connections to healthy peers that have posted no receive
// yet (their window is zero). Channels look at the age of the last acknowledgement instead.
void tune(int fd, Nanos peer_timeout) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY);
  survive_outages(fd, peer_timeout);
  if (!is_same_host(fd)) return;
  // BBR paces even if there is no queue to build up: on loopback it halves the bandwidth (2.4 GB/s instead
  // of 5.1 GB/s).
  for (const std::string_view name : {"reno", "cubic"}) {
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0)
      return;
  }
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(TcpOptions options, std::unique_ptr<Poller> poller)
      : options_(std::move(options)),
        poller_(std::move(poller)),
        scratch_(options_.bytes_per_call + kAlignment),
        connector_(options_.identity, ConnectionKind::kData, *poller_, [this](int fd) {
          tune(fd, options_.peer_timeout);
          return Status::ok();
        }) {}

  Status open() {
    Result<SocketAddress> address = make_tcp_address(options_.bind_host, options_.bind_port);
    if (!address.is_ok()) return address.status();
    Result<UniqueFd> listening = open_listening(address.value(), kTcpBacklog);
    if (!listening.is_ok()) return listening.status();
    address_ = host_and_port(options_.advertised_host.empty() ? options_.bind_host : options_.advertised_host,
                             own_address(listening.value().get()).port());
    if (Result<SocketAddress> advertised = parse_tcp_address(address_); !advertised.is_ok())
      return advertised.status();
    return connector_.listen_on(std::move(listening).value());
  }

  [[nodiscard]] std::string_view name() const override { return "tcp"; }
  [[nodiscard]] std::string address() const override { return address_; }
  [[nodiscard]] bool reaches(std::string_view peer_address) const override {
    return parse_tcp_address(peer_address).is_ok();
  }

  Status connect(Rank peer, std::string_view peer_address, uint16_t channel) override {
    const ChannelName name{peer, channel};
    if (!abort_.is_ok()) return abort_;
    if (Status status = check_channel(options_.identity, name); !status.is_ok()) return status;
    Result<SocketAddress> address = parse_tcp_address(peer_address);
    if (!address.is_ok()) return address.status();
    if (peer < options_.identity.rank) connector_.dial(name, address.value());
    return Status::ok();
  }

  Endpoint* endpoint(Rank peer, uint16_t channel) override {
    const auto it = channels_.find({peer, channel});
    return it == channels_.end() ? nullptr : it->second.get();
  }

  [[nodiscard]] std::string trouble_with(Rank peer) const override { return connector_.trouble_with(peer); }

  bool progress(std::vector<Completion>& done) override {
    poller_->poll();
    const Nanos now = monotonic_now();
    bool is_moved = connector_.progress(now);
    adopt();
    for (const auto& [name, channel] : channels_) is_moved |= channel->progress();
    push(now);
    if (now >= next_liveness_) {
      next_liveness_ = now + std::min(kLivenessPeriod, options_.peer_timeout / kLooksPerTimeout);
      for (const auto& [name, channel] : channels_) channel->check_liveness(now, options_.peer_timeout);
    }
    return outcome_.hand_over(done) || is_moved;
  }

  std::vector<Loss> take_losses() override { return outcome_.take_losses(); }

  bool prepare_sleep() override {
    if (!outcome_.completions.empty() || !outcome_.losses.empty() || connector_.has_work()) return false;
    for (const auto& [name, channel] : channels_) {
      if (channel->has_work()) return false;
    }
    Nanos due = connector_.next_due();
    if (!channels_.empty()) due = due == 0 ? next_liveness_ : std::min(due, next_liveness_);
    for (const auto& [name, channel] : channels_) {
      if (channel->may_be_unsent()) due = std::min(due, next_push_);
    }
    poller_->wake_at(due);
    return true;
  }

  void wake_fds(std::vector<int>& fds) const override { fds.push_back(poller_->fd()); }

  void abort(const Status& why) override {
    if (!abort_.is_ok()) return;
    abort_ = why;
    connector_.close();
    for (const auto& [name, channel] : channels_) channel->end(why);
  }

 private:
  static constexpr size_t kAlignment = 64;

  std::span<std::byte> aligned_scratch() {
    void* data = scratch_.data();
    size_t space = scratch_.size();
    std::align(kAlignment, options_.bytes_per_call, data, space);
    return {static_cast<std::byte*>(data), options_.bytes_per_call};
  }

  void push(Nanos now) {
    if (now < next_push_) return;
    next_push_ = now + kPushPeriod;
    for (const auto& [name, channel] : channels_) {
      if (channel->may_be_unsent()) channel->push();
    }
  }

  void adopt() {
    for (Connected& connected : connector_.take_connected()) {
      if (channels_.contains(connected.name))
        continue;  // a channel comes up once; a second connection is closed
      channels_[connected.name] = std::make_unique<TcpChannel>(connected.name, std::move(connected.fd),
                                                               *poller_, outcome_, aligned_scratch());
    }
    for (Loss& loss : connector_.take_failures()) outcome_.losses.push_back(std::move(loss));
  }

  TcpOptions options_;
  std::string address_;
  std::unique_ptr<Poller> poller_;
  Outcome outcome_;
  Bytes scratch_;
  Connector connector_;
  std::map<ChannelName, std::unique_ptr<TcpChannel>> channels_;
  Nanos next_liveness_ = 0;
  Nanos next_push_ = 0;
  Status abort_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp(TcpOptions options) {
  if (Status status = check_identity(options.identity); !status.is_ok()) return status;
  options.bytes_per_call = std::clamp<size_t>(options.bytes_per_call, 4 << 10, 16 << 20);
  Result<std::unique_ptr<Poller>> poller = Poller::make();
  if (!poller.is_ok()) return poller.status();
  auto transport = std::make_unique<TcpTransport>(std::move(options), std::move(poller).value());
  if (Status status = transport->open(); !status.is_ok()) return status;
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace rueda::transport
