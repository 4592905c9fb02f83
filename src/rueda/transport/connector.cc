#include "rueda/transport/connector.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rueda/base/descriptors.h"
#include "rueda/transport/host_silence.h"

namespace rueda::transport {
namespace {

constexpr Nanos kFirstBackoff = 5 * kMillisecond;
constexpr Nanos kLongestBackoff = 500 * kMillisecond;
// Of descriptors, until waiting for better days is no use. Diallers try again more often.
constexpr Nanos kLackLasts = 5 * kSecond;
constexpr int kTcpRtoMaxMs = 44;  // TCP_RTO_MAX_MS, since Linux 6.15; older ones refuse it

}  // namespace

Status check_identity(const Identity& identity) {
  const auto invalid = [](const std::string& what) { return Status(Code::kInvalidArgument, what); };
  if (identity.job.empty() || identity.job.size() > 64)
    return invalid("a job identifier has 1 to 64 bytes; this one has " + std::to_string(identity.job.size()) +
                   ".");
  if (identity.release.size() > 64) return invalid("the text of the release has more than 64 bytes.");
  if (identity.secret.key.size() < 16) return invalid("the job's secret has fewer than 16 bytes.");
  if (identity.rank < 0 || identity.rank >= identity.size)
    return invalid("rank " + std::to_string(identity.rank) + " is impossible in a world of " +
                   std::to_string(identity.size) + ".");
  return Status::ok();
}

Status check_channel(const Identity& identity, const ChannelName& name) {
  if (name.peer < 0 || name.peer >= identity.size || name.peer == identity.rank)
    return {Code::kInvalidArgument, "rank " + std::to_string(identity.rank) + " cannot connect to rank " +
                                        std::to_string(name.peer) + " of " + std::to_string(identity.size) +
                                        "."};
  if (name.channel >= Connector::kMaxChannels)
    return {Code::kInvalidArgument,
            "channel " + std::to_string(name.channel) + " is beyond the 16 channels of a peer."};
  return Status::ok();
}

void survive_outages(int fd, Nanos peer_timeout) {
  const Tries tries = tries_for(peer_timeout);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, tries.keep_alive_s);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, tries.keep_alive_s);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, tries.keep_alive_count);
  set_option(fd, IPPROTO_TCP, kTcpRtoMaxMs, static_cast<int>(tries.gap / kMillisecond));
}

Connector::Connector(const Identity& identity, ConnectionKind kind, Poller& poller, Vet vet)
    : identity_(identity), kind_(kind), poller_(poller), vet_(std::move(vet)) {}

Connector::~Connector() { close(); }

Status Connector::listen_on(UniqueFd listening) {
  listening_ = std::move(listening);
  reserve_ = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  return poller_.add(listening_.get(), listening_watch_);
}

void Connector::dial(ChannelName name, SocketAddress address) {
  auto dialing = std::make_unique<Dialing>();
  dialing->name = name;
  dialing->address = address;
  dialing_.push_back(std::move(dialing));
}

void Connector::close() {
  for (const auto& connection : pending_) poller_.remove(connection->fd());
  for (const auto& dialing : dialing_) {
    if (dialing->fd.is_open()) poller_.remove(dialing->fd.get());
    if (dialing->connection) poller_.remove(dialing->connection->fd());
  }
  pending_.clear();
  dialing_.clear();
  if (listening_.is_open()) poller_.remove(listening_.get());
  listening_.reset();
  reserve_.reset();
}

bool Connector::has_work() const {
  const auto is_ready = [](const auto& connection) { return connection->watch.has(EPOLLIN); };
  return listening_watch_.has(EPOLLIN) || !connected_.empty() || !failures_.empty() ||
         std::any_of(pending_.begin(), pending_.end(), is_ready) ||
         std::any_of(dialing_.begin(), dialing_.end(), [](const auto& dialing) {
           if (dialing->connection) return dialing->connection->watch.ready != 0;
           return dialing->watch.ready != 0 || (!dialing->fd.is_open() && dialing->retry_at == 0);
         });
}

Nanos Connector::next_due() const {
  Nanos due = 0;
  const auto sooner = [&due](Nanos when) { due = due == 0 ? when : std::min(due, when); };
  if (!pending_.empty()) sooner(pending_.front()->started() + kStrangerTime);
  for (const auto& dialing : dialing_) {
    if (!dialing->connection && !dialing->fd.is_open()) sooner(std::max<Nanos>(dialing->retry_at, 1));
  }
  return due;
}

std::string Connector::trouble_with(Rank peer) const {
  std::string trouble;
  for (const auto& dialing : dialing_) {
    if (dialing->name.peer != peer) continue;
    if (!dialing->trouble.empty()) return dialing->trouble;
    trouble = dialing->connection
                  ? "the connection is open, but the other end does not complete the handshake"
                  : "no answer (does a firewall drop the packets?)";
  }
  return trouble;
}

bool Connector::progress(Nanos now) {
  bool is_moved = listening_watch_.has(EPOLLIN) && accept_some(now);
  is_moved |= advance_pending(now);
  for (auto it = dialing_.begin(); it != dialing_.end();) {
    const bool is_over = advance(**it, now);
    is_moved |= is_over;
    it = is_over ? dialing_.erase(it) : std::next(it);
  }
  return is_moved;
}

bool Connector::accept_some(Nanos now) {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    if (!accept_one(now)) {
      listening_watch_.clear(EPOLLIN);
      return i > 0;
    }
  }
  return true;  // the event stays set, because more connections may be waiting
}

bool Connector::accept_one(Nanos now) {
  UniqueFd fd = accept_caller(listening_.get());
  if (!fd.is_open()) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (is_out_of_descriptors(errno)) turn_away(out_of_descriptors(errno), now);
    return true;  // this one is gone; the next may be fine. The caller's loop is bounded.
  }
  if (Status status = vet_(fd.get()); !status.is_ok()) {
    refusals_.warn("this rank", status);
    return true;
  }
  if (pending_.size() >= std::max(kMaxPending, static_cast<size_t>(identity_.size))) evict_one();
  ConnectionIdentity accepted = connection_identity({});
  accepted.from = -1;
  accepted.to = identity_.rank;
  auto connection = std::make_unique<PendingConnection>(
      std::move(fd), Handshake::server(identity_.secret, accepted, identity_.release), now);
  if (!poller_.add(connection->fd(), connection->watch).is_ok()) return true;
  connection->watch.ready = EPOLLIN;  // its first message has often arrived already
  pending_.push_back(std::move(connection));
  return true;
}

// Closes one waiting connection with the help of a spare descriptor. Without a spare, no connection could be
// accepted, not even to be closed, and the listener would stay readable. If no strangers hold descriptors,
// or the lack lasts because peers turn one another away, waiting would not help, so this becomes a failure.
void Connector::turn_away(const Status& why, Nanos now) {
  if (lacked_at_ == 0 || now - lacked_at_ > kLackLasts) lacks_since_ = now;
  lacked_at_ = now;
  const bool is_lasting = now - lacks_since_ >= kLackLasts;
  if ((pending_.empty() || is_lasting) && failures_.empty()) failures_.push_back({-1, 0, why});
  if (!pending_.empty()) evict_one();
  reserve_.reset();
  { const UniqueFd turned_away = accept_caller(listening_.get()); }
  reserve_ = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  refusals_.warn("this rank", why);
}

// Evicts a stranger that has said nothing rather than one in the middle of its handshake.
void Connector::evict_one() {
  auto victim =
      std::find_if(pending_.begin(), pending_.end(), [](const auto& g) { return !g->has_answered(); });
  if (victim == pending_.end()) victim = pending_.begin();
  poller_.remove((*victim)->fd());
  pending_.erase(victim);
}

bool Connector::advance_pending(Nanos now) {
  bool is_moved = false;
  for (auto it = pending_.begin(); it != pending_.end();) {
    PendingConnection& connection = **it;
    auto state = PendingConnection::Progress::kBusy;
    if (connection.watch.ready != 0) {
      connection.watch.clear(~static_cast<uint32_t>(EPOLLIN));
      state = connection.advance();
    }
    const bool is_late = now - connection.started() > kStrangerTime;
    if (state == PendingConnection::Progress::kBusy && !is_late) {
      ++it;
      continue;
    }
    is_moved = true;
    poller_.remove(connection.fd());
    if (state == PendingConnection::Progress::kDone) admit(connection);
    if (state == PendingConnection::Progress::kRefused) refusals_.warn("this rank", connection.why());
    it = pending_.erase(it);
  }
  return is_moved;
}

void Connector::admit(PendingConnection& connection) {
  const ChannelName name{connection.identity().from, connection.identity().channel};
  // The higher rank dials. Anyone else knows the secret but breaks the rules.
  if (name.peer <= identity_.rank || name.peer >= identity_.size || name.channel >= kMaxChannels) {
    refusals_.warn("this rank",
                   {Code::kPermissionDenied, to_string(name) + " has no reason to dial this rank."});
    return;
  }
  connected_.push_back({connection.take_fd(), name, false});
}

bool Connector::advance(Dialing& dialing, Nanos now) {
  if (!dialing.connection && !dialing.fd.is_open()) {
    if (now < dialing.retry_at) return false;
    if (Status status = start(dialing, now); !status.is_ok()) return fail(dialing, status), true;
  }
  if (dialing.fd.is_open() && dialing.watch.ready != 0) {
    poller_.remove(dialing.fd.get());
    dialing.watch.ready = 0;
    if (const Status result = connection_result(dialing.fd.get()); !result.is_ok())
      return retry_later(dialing, result.why, now), false;
    if (Status status = vet_(dialing.fd.get()); !status.is_ok()) return fail(dialing, status), true;
    dialing.connection = std::make_unique<PendingConnection>(
        std::move(dialing.fd),
        Handshake::client(identity_.secret, connection_identity(dialing.name), identity_.release), now);
    if (Status status = poller_.add(dialing.connection->fd(), dialing.connection->watch); !status.is_ok())
      return fail(dialing, status), true;
    dialing.connection->watch.ready = EPOLLOUT;
  }
  if (!dialing.connection || dialing.connection->watch.ready == 0) return false;
  dialing.connection->watch.clear(~static_cast<uint32_t>(EPOLLIN));
  const PendingConnection::Progress state = dialing.connection->advance();
  if (state == PendingConnection::Progress::kBusy) return false;
  poller_.remove(dialing.connection->fd());
  if (state == PendingConnection::Progress::kHungUp)
    return retry_later(dialing, "the other end closed the connection during the handshake", now), false;
  if (state == PendingConnection::Progress::kRefused) return fail(dialing, dialing.connection->why()), true;
  connected_.push_back({dialing.connection->take_fd(), dialing.name, true});
  return true;
}

// Fails only if a later attempt would fail as well.
Status Connector::start(Dialing& dialing, Nanos now) {
  Result<UniqueFd> opened = open_socket(dialing.address.family());
  if (!opened.is_ok()) return opened.status();
  dialing.fd = std::move(opened).value();
  dialing.watch.ready = 0;
  const Result<bool> begun = begin_connecting(dialing.fd.get(), dialing.address);
  const Status watched = begun.is_ok() ? poller_.add(dialing.fd.get(), dialing.watch) : begun.status();
  if (!watched.is_ok()) return retry_later(dialing, watched.why, now), Status::ok();
  if (begun.value()) dialing.watch.ready = EPOLLOUT;
  return Status::ok();
}

// The peer may just not be up yet. The deadline of the caller limits the attempts.
void Connector::retry_later(Dialing& dialing, std::string why, Nanos now) {
  dialing.trouble = std::move(why);
  dialing.fd.reset();
  dialing.connection.reset();
  dialing.watch.ready = 0;
  dialing.backoff = std::clamp(dialing.backoff * 2, kFirstBackoff, kLongestBackoff);
  dialing.retry_at = now + dialing.backoff;
}

void Connector::fail(const Dialing& dialing, Status why) {
  why.why = "cannot connect to rank " + std::to_string(dialing.name.peer) + ": " + why.why;
  failures_.push_back({dialing.name.peer, dialing.name.channel, std::move(why)});
}

ConnectionIdentity Connector::connection_identity(const ChannelName& name) const {
  return {.job = identity_.job,
          .epoch = identity_.epoch,
          .kind = kind_,
          .channel = name.channel,
          .from = identity_.rank,
          .to = name.peer};
}

}  // namespace rueda::transport
