#include "rueda/transport/ucx/ucx.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "rueda/base/refusal_log.h"
#include "rueda/base/socket.h"
#include "rueda/transport/connector.h"
#include "rueda/transport/ucx/link.h"

namespace rueda::transport {
namespace {

constexpr int kUcxBacklog = 1024;
constexpr int kLooks = 16;                        // at the devices, before it is the turn of the channels
constexpr int kLooksAtTheEnd = 4096;              // until a device whose peer has gone is empty
constexpr Nanos kLastWords = 250 * kMillisecond;  // how long this rank waits until the peers have got them
constexpr Nanos kDrainTime = 250 * kMillisecond;  // how long abort() waits for UCX to give back the buffers

class UcxTransport final : public Transport {
 public:
  UcxTransport(UcxOptions options, std::unique_ptr<Poller> poller)
      : options_(std::move(options)),
        poller_(std::move(poller)),
        connector_(options_.identity, ConnectionKind::kUcx, *poller_, [this](int fd) {
          set_option(fd, IPPROTO_TCP, TCP_NODELAY);
          survive_outages(fd, options_.peer_timeout);
          return Status::ok();
        }) {}

  ~UcxTransport() override {
    if (getpid() != owner_) {  // a forked child must not touch the devices of its parent
      [[maybe_unused]] const UcxWorker* left = worker_.release();
      return;
    }
    abort({Code::kShutDown, "the transport was closed."});
  }
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  Status open() {
    Result<std::unique_ptr<UcxWorker>> worker =
        UcxWorker::make(static_cast<size_t>(options_.identity.size),
                        [this](std::span<const std::byte> header, ActiveMessage& active_message) {
                          on_arrival(header, active_message);
                        });
    if (!worker.is_ok()) return worker.status();
    worker_ = std::move(worker).value();
    if (worker_->address().size() > kMaxWorkerAddress)
      return {Code::kUnavailable, "the address of this host's UCX worker has " +
                                      std::to_string(worker_->address().size()) +
                                      " bytes; name fewer devices in UCX_NET_DEVICES."};
    // A copy stays valid when the worker ends, for those who still poll it.
    wake_fd_ = UniqueFd(fcntl(worker_->wake_fd(), F_DUPFD_CLOEXEC, 0));
    if (!wake_fd_.is_open()) return {Code::kUnavailable, "too many descriptors are open; raise ulimit -n."};
    Result<SocketAddress> address = make_tcp_address(options_.bind_host, 0);
    if (!address.is_ok()) return address.status();
    Result<UniqueFd> listening = open_listening(address.value(), kUcxBacklog);
    if (!listening.is_ok()) return listening.status();
    address_ = host_and_port(options_.bind_host, own_address(listening.value().get()).port());
    return connector_.listen_on(std::move(listening).value());
  }

  [[nodiscard]] std::string_view name() const override { return "ucx"; }
  [[nodiscard]] std::string address() const override { return address_; }
  [[nodiscard]] bool reaches(std::string_view peer_address) const override {
    return parse_tcp_address(peer_address).is_ok();
  }

  Status connect(Rank peer, std::string_view peer_address, uint16_t channel) override {
    if (!abort_.is_ok()) return abort_;
    if (Status status = check_channel(options_.identity, {peer, channel}); !status.is_ok()) return status;
    Result<SocketAddress> address = parse_tcp_address(peer_address);
    if (!address.is_ok()) return address.status();
    if (const auto found = links_.find(peer); found != links_.end()) {
      found->second->open(channel);
      return Status::ok();
    }
    std::set<uint16_t>& wanted = wanted_[peer];
    if (wanted.empty() && peer < options_.identity.rank) connector_.dial({peer, 0}, address.value());
    wanted.insert(channel);
    return Status::ok();
  }

  Endpoint* endpoint(Rank peer, uint16_t channel) override {
    const auto found = links_.find(peer);
    return found == links_.end() ? nullptr : found->second->endpoint(channel);
  }

  [[nodiscard]] std::string trouble_with(Rank peer) const override {
    const auto found = links_.find(peer);
    return found == links_.end() ? connector_.trouble_with(peer) : found->second->trouble();
  }

  bool progress(std::vector<Completion>& done) override {
    const bool is_moved = turn();
    return outcome_.hand_over(done) || is_moved;
  }

  std::vector<Loss> take_losses() override { return outcome_.take_losses(); }

  bool prepare_sleep() override {
    if (!outcome_.completions.empty() || !outcome_.losses.empty() || connector_.has_work()) return false;
    Nanos due = connector_.next_due();
    for (const auto& [peer, link] : links_) {
      if (link->has_work()) return false;
      if (const Nanos deadline = link->next_due(); deadline != 0)
        due = due == 0 ? deadline : std::min(due, deadline);
    }
    poller_->wake_at(due);
    return worker_ == nullptr || worker_->arm();
  }

  void wake_fds(std::vector<int>& fds) const override {
    fds.push_back(poller_->fd());
    fds.push_back(wake_fd_.get());
  }

  // When this returns, no card touches a buffer of a caller any more.
  void abort(const Status& why) override {
    if (!abort_.is_ok()) return;
    abort_ = why;
    if (worker_ == nullptr) return;  // open() has failed
    connector_.close();
    await_last_words();
    release_worker();
    for (const auto& [peer, link] : links_) link->end(why);
  }

 private:
  // One look at everything. True: something moved.
  bool turn() {
    poller_->poll();
    const Nanos now = monotonic_now();
    bool is_moved = connector_.progress(now);
    adopt();
    bool has_lost = false;
    for (const auto& [peer, link] : links_) {
      link->on_socket();
      has_lost |= link->is_hung_up();
    }
    const int looks = has_lost ? kLooksAtTheEnd : kLooks;
    for (int look = 0; look < looks && worker_ != nullptr && worker_->progress(); ++look) is_moved = true;
    Rank stuck = -1;
    for (const auto& [peer, link] : links_) {
      is_moved |= link->progress(now);
      if (link->drain_deadline() != 0 && now >= link->drain_deadline()) stuck = peer;
    }
    if (stuck >= 0) give_up(stuck);
    return is_moved;
  }

  void adopt() {
    for (Connected& connected : connector_.take_connected()) {
      const Rank peer = connected.name.peer;
      if (links_.contains(peer)) continue;  // a link comes up once; a second connection is closed
      UcxLink& link = *(links_[peer] = std::make_unique<UcxLink>(
                            peer, std::move(connected.fd),
                            UcxLink::Site{options_.identity.rank, worker_.get(), &bounce_buffers_,
                                          poller_.get(), &outcome_}));
      for (const uint16_t channel : wanted_[peer]) link.open(channel);
    }
    for (Loss& loss : connector_.take_failures()) outcome_.losses.push_back(std::move(loss));
  }

  // In the worker's progress(). Anyone who reaches the worker can send a message; only a peer that has proved
  // itself has been told the token.
  void on_arrival(std::span<const std::byte> bytes, ActiveMessage& active_message) {
    const std::optional<PieceHeader> header = parse_piece_header(bytes);
    const auto found = header ? links_.find(static_cast<Rank>(header->from)) : links_.end();
    if (found == links_.end() || !found->second->knows(*header))
      return refusals_.warn(
          "this rank",
          {Code::kPermissionDenied, "a UCX message without the token of a proven peer has been dropped."});
    found->second->on_message(*header, active_message);
  }

  // A message that UCX has taken may still be in this process, or on the wire. The peer may depend on it: it
  // often says why this rank goes.
  void await_last_words() {
    const Deadline deadline = Deadline::after(kLastWords);
    for (const auto& [peer, link] : links_) link->ask_for_reports();
    const auto are_heard = [this] {
      return std::all_of(links_.begin(), links_.end(),
                         [](const auto& named) { return named.second->are_last_words_heard(); });
    };
    wait_until(deadline, are_heard);
  }

  // Ends all that UCX does for this rank: closing a connection makes its requests complete, and destroying
  // the worker also ends those that did not.
  void release_worker() {
    for (const auto& [peer, link] : links_) link->disconnect();
    const auto are_drained = [this] {
      return std::all_of(links_.begin(), links_.end(),
                         [](const auto& named) { return named.second->is_drained(); });
    };
    const Deadline deadline = Deadline::after(kDrainTime);
    while (!are_drained() && !deadline.is_past()) worker_->progress();
    for (const auto& [peer, link] : links_) link->drop_arrivals();
    worker_.reset();
  }

  void wait_until(Deadline deadline, const std::function<bool()>& is_over) {
    while (!is_over() && !deadline.is_past()) {
      if (turn() || worker_ == nullptr || !worker_->arm()) continue;
      pollfd polled[] = {{poller_->fd(), POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}};
      (void)::poll(polled, std::size(polled), std::min(deadline.timeout_ms(), 5));
    }
  }

  // UCX did not complete the requests of a lost peer. Their buffers are the callers', so the worker must go,
  // and all links with it.
  void give_up(Rank stuck) {
    abort_ = {Code::kPeerLost,
              "UCX did not give back the buffers of rank " + std::to_string(stuck) + ", which is lost."};
    connector_.close();
    release_worker();
    links_[stuck]->lose_all(abort_);
    for (const auto& [peer, link] : links_)
      link->lose_all(
          peer_lost({peer, 0}, "was disconnected, because UCX did not give back the buffers of rank " +
                                   std::to_string(stuck) + ", which is lost"));
  }

  UcxOptions options_;
  const pid_t owner_ = getpid();
  std::string address_;
  std::unique_ptr<Poller> poller_;
  UniqueFd wake_fd_;
  Outcome outcome_;
  BounceBuffers bounce_buffers_;
  std::unique_ptr<UcxWorker> worker_;  // null after the end
  Connector connector_;
  std::map<Rank, std::set<uint16_t>> wanted_;
  std::map<Rank, std::unique_ptr<UcxLink>> links_;
  RefusalLog refusals_;
  Status abort_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_ucx(UcxOptions options) {
  if (Status status = check_identity(options.identity); !status.is_ok()) return status;
  Result<std::unique_ptr<Poller>> poller = Poller::make();
  if (!poller.is_ok()) return poller.status();
  auto transport = std::make_unique<UcxTransport>(std::move(options), std::move(poller).value());
  if (Status status = transport->open(); !status.is_ok()) return status;
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace rueda::transport
