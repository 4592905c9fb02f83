#include "rueda/transport/shm/shm.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "rueda/base/socket.h"
#include "rueda/transport/connector.h"
#include "rueda/transport/shm/board.h"
#include "rueda/transport/shm/channel.h"
#include "rueda/transport/shm/doorbell.h"
#include "rueda/transport/shm/process_watch.h"

namespace rueda::transport {
namespace {

constexpr int kShmBacklog = 4096;  // all ranks of a host may dial one at once
constexpr std::string_view kPrefix = "shm:";
constexpr std::string_view kSocketPrefix = "rueda-";
constexpr size_t kSocketNameBytes = kSocketPrefix.size() + 32;
// While data only moves in memory, the socket is looked at once in this many rounds, because a system call
// costs more than looking at the rings.
constexpr int kRoundsPerPoll = 64;

// Identifies where memory can be shared. Abstract sockets are visible within a network namespace, and memory
// can be shared within a running kernel by processes of one user.
Result<std::string> host_key() {
  const UniqueFd fd(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 36> boot{};
  struct stat net {};
  if (!fd.is_open() || read(fd.get(), boot.data(), boot.size()) != static_cast<ssize_t>(boot.size()) ||
      stat("/proc/self/ns/net", &net) != 0)
    return Status(Code::kUnavailable,
                  "cannot tell this host from others without /proc; shared memory is off.");
  return std::string(boot.data(), boot.size()) + "-" + std::to_string(net.st_ino) + "-" +
         std::to_string(geteuid());
}

std::string random_name() {
  std::array<unsigned char, 16> random{};
  RUEDA_CHECK(getrandom(random.data(), random.size(), 0) == static_cast<ssize_t>(random.size()),
              "getrandom gave too few bytes");
  std::string name(kSocketPrefix);
  for (const unsigned char byte : random) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return name;
}

std::string_view socket_name_in(std::string_view address) {
  return address.substr(address.size() - std::min(address.size(), kSocketNameBytes));
}

std::string doorbell_of(std::string_view socket_name) { return std::string(socket_name) + "-bell"; }

// Admits only processes of this user. The secret proves the job; this check already keeps other users of
// the host out.
Status vet_user(int fd) {
  if (peer_process(fd).uid != geteuid())
    return {Code::kPermissionDenied, "the peer on this host belongs to another user."};
  return Status::ok();
}

class SharedMemoryTransport final : public Transport {
 public:
  SharedMemoryTransport(ShmOptions options, std::string host, std::unique_ptr<Poller> poller)
      : options_(std::move(options)),
        host_(std::move(host)),
        socket_name_(random_name()),
        poller_(std::move(poller)),
        processes_(options_.identity.rank, *poller_),
        connector_(options_.identity, ConnectionKind::kShm, *poller_, vet_user),
        board_(options_.identity.rank, *poller_, outcome_) {}

  Status open() {
    Result<std::unique_ptr<Doorbell>> doorbell = Doorbell::open(doorbell_of(socket_name_), *poller_);
    if (!doorbell.is_ok()) return doorbell.status();
    doorbell_ = std::move(doorbell).value();
    Result<UniqueFd> listening = open_listening(make_abstract_address(socket_name_), kShmBacklog);
    if (!listening.is_ok()) return listening.status();
    return connector_.listen_on(std::move(listening).value());
  }

  [[nodiscard]] std::string_view name() const override { return "shm"; }
  [[nodiscard]] std::string address() const override {
    return std::string(kPrefix) + host_ + "@" + socket_name_;
  }
  [[nodiscard]] bool reaches(std::string_view peer_address) const override {
    const std::string mine = std::string(kPrefix) + host_ + "@" + std::string(kSocketPrefix);
    return peer_address.starts_with(mine) &&
           peer_address.size() == mine.size() - kSocketPrefix.size() + kSocketNameBytes;
  }

  Status connect(Rank peer, std::string_view peer_address, uint16_t channel) override {
    const ChannelName name{peer, channel};
    if (!abort_.is_ok()) return abort_;
    if (Status status = check_channel(options_.identity, name); !status.is_ok()) return status;
    if (!reaches(peer_address))
      return {Code::kInvalidArgument, "rank " + std::to_string(peer) + " shares no memory with this host."};
    if (endpoint(peer, channel) == nullptr) wanted_.insert(name);
    dial(name, peer_address);
    return Status::ok();
  }

  Status share(HostShare host) override {
    if (!abort_.is_ok()) return abort_;
    const Rank lowest = host.ranks.front();
    const std::string address = host.address_of_lowest;
    if (!reaches(address))
      return {Code::kInvalidArgument, "rank " + std::to_string(lowest) + " shares no memory with this host."};
    board_.begin(std::move(host));
    dial({lowest, kBoardChannel}, address);
    return Status::ok();
  }
  [[nodiscard]] std::vector<Rank> awaited_shares() const override { return board_.missing(); }

  Endpoint* endpoint(Rank peer, uint16_t channel) override {
    const auto it = channels_.find({peer, channel});
    if (it == channels_.end() || !(it->second->is_up() || it->second->is_ended())) return nullptr;
    return it->second.get();
  }

  [[nodiscard]] std::string trouble_with(Rank peer) const override { return connector_.trouble_with(peer); }

  std::vector<UniqueFd> take_shared(Rank peer) override { return board_.take(peer); }

  void watch_over(HostWatch host) override {
    for (size_t i = 0; i < host.ranks.size(); ++i)
      doorbells_[host.ranks[i]] = doorbell_of(socket_name_in(host.addresses[i]));
    processes_.begin(std::move(host), [this](Rank peer) { ring_for(peer, Doorbell::Rung::kForNews); });
    for (ShmChannel* channel : on_sockets_) channel->let_go();
    look_at_sockets();
  }
  void ring(Rank peer) override { ring_for(peer, Doorbell::Rung::kForData); }

  [[nodiscard]] bool is_silent() const override { return true; }

  bool progress(std::vector<Completion>& done) override {
    const bool was_asleep = std::exchange(is_asleep_, false);
    if (was_asleep) wake_up();
    bool is_moved = false;
    if (was_asleep || !wanted_.empty() || !board_.is_over() || ++rounds_since_poll_ >= kRoundsPerPoll)
      is_moved = look_outside();
    for (size_t i = 0; i < busy_.size(); ++i) is_moved |= busy_[i]->progress();  // it may grow meanwhile
    std::erase_if(busy_, [](ShmChannel* channel) { return !channel->stays_busy(); });
    return outcome_.hand_over(done) || is_moved;
  }

  std::vector<Loss> take_losses() override { return outcome_.take_losses(); }

  bool prepare_sleep() override {
    is_asleep_ = true;
    bool is_idle = outcome_.completions.empty() && outcome_.losses.empty() && !connector_.has_work() &&
                   !board_.has_work() && !doorbell_->has_rung();
    for (ShmChannel* channel : busy_) is_idle = is_idle && channel->fall_asleep();
    if (!is_idle) {
      is_asleep_ = false;
      wake_up();
      look_outside();  // what a channel waits for may be on its socket
      return false;
    }
    poller_->wake_at(connector_.next_due());
    return true;
  }

  void wake_fds(std::vector<int>& fds) const override { fds.push_back(poller_->fd()); }

  void abort(const Status& why) override {
    if (!abort_.is_ok()) return;
    abort_ = why;
    connector_.close();
    board_.end();
    for (const auto& [name, channel] : channels_) channel->end(why);
    processes_.end();
  }

 private:
  void wake_up() {
    for (ShmChannel* channel : busy_) channel->wake_up();
  }

  [[nodiscard]] size_t ring_bytes(uint16_t channel) const {
    return channel == 0 ? options_.ring_bytes : std::max(options_.ring_bytes / 8, RingMapping::kMinRingBytes);
  }

  // Looks at the sockets: doorbells, closed connections, new connections.
  bool look_outside() {
    rounds_since_poll_ = 0;
    const bool has_events = poller_->poll();
    const Nanos now = monotonic_now();
    bool is_moved = connector_.progress(now);
    for (Connected& connected : connector_.take_connected()) adopt(std::move(connected));
    for (Loss& loss : connector_.take_failures()) outcome_.losses.push_back(std::move(loss));
    is_moved |= board_.progress();
    if (has_events || !wanted_.empty()) look_at_sockets();
    const bool is_news = doorbell_->take() == Doorbell::Rung::kForNews;
    if (processes_.progress(now) || is_news)
      for (const auto& [name, channel] : channels_) channel->look_at_peer();
    return is_moved;
  }

  void look_at_sockets() {
    for (ShmChannel* channel : on_sockets_) {
      const bool is_awaited = !channel->is_up() && !channel->is_ended();
      channel->on_socket();
      if (is_awaited) stop_wanting(*channel);
    }
    std::erase_if(on_sockets_, [](const ShmChannel* channel) { return !channel->has_socket(); });
  }

  // Once it is up, or will never be.
  void stop_wanting(const ShmChannel& channel) {
    if (channel.is_up() || channel.is_ended()) wanted_.erase(channel.name());
  }

  void ring_for(Rank peer, Doorbell::Rung why) {
    const auto found = doorbells_.find(peer);
    if (found != doorbells_.end()) doorbell_->ring(found->second, why);
  }

  // The higher rank dials.
  void dial(ChannelName name, std::string_view peer_address) {
    if (name.peer >= options_.identity.rank) return;
    connector_.dial(name, make_abstract_address(socket_name_in(peer_address)));
  }

  void adopt(Connected connected) {
    if (connected.name.channel == kBoardChannel)
      return board_.adopt(connected.name.peer, std::move(connected.fd));
    if (channels_.contains(connected.name)) return;  // a channel comes up once; a second connection is closed
    auto channel = std::make_unique<ShmChannel>(
        connected.name, std::move(connected.fd),
        ShmChannel::Surroundings{*poller_, outcome_, busy_, *doorbell_, processes_});
    if (!connected.is_dialer) channel->offer_memory(ring_bytes(connected.name.channel));
    channel->let_go();
    stop_wanting(*channel);
    on_sockets_.push_back(channel.get());
    channels_[connected.name] = std::move(channel);
  }

  ShmOptions options_;
  std::string host_, socket_name_;
  std::unique_ptr<Poller> poller_;
  Outcome outcome_;
  std::unique_ptr<Doorbell> doorbell_;
  ProcessWatch processes_;
  std::unordered_map<Rank, std::string>
      doorbells_;  // names of the other ranks of this host, after watch_over()
  Connector connector_;
  std::map<ChannelName, std::unique_ptr<ShmChannel>> channels_;
  std::vector<ShmChannel*> on_sockets_, busy_;  // those with a socket; those with something to do
  Board board_;
  std::set<ChannelName> wanted_;  // not up yet
  int rounds_since_poll_ = 0;
  bool is_asleep_ = false;
  Status abort_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_shm(ShmOptions options) {
  if (Status status = check_identity(options.identity); !status.is_ok()) return status;
  options.ring_bytes =
      std::bit_ceil(std::clamp(options.ring_bytes, RingMapping::kMinRingBytes, RingMapping::kMaxRingBytes));
  Result<std::string> host = host_key();
  if (!host.is_ok()) return host.status();
  // Tried now, because a rank can still do without shared memory before it has published an address.
  if (const auto tried = RingMapping::create(options.ring_bytes); !tried.is_ok()) return tried.status();
  Result<std::unique_ptr<Poller>> poller = Poller::make();
  if (!poller.is_ok()) return poller.status();
  auto transport = std::make_unique<SharedMemoryTransport>(std::move(options), std::move(host).value(),
                                                           std::move(poller).value());
  if (Status status = transport->open(); !status.is_ok()) return status;
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace rueda::transport
