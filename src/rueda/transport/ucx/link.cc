#include "rueda/transport/ucx/link.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "rueda/base/socket.h"
#include "rueda/transport/connector.h"

namespace rueda::transport {
namespace {

constexpr Nanos kLinkDrainTime = kSecond;  // what is left to do is local, and takes milliseconds
// UCX has lost the peer. Its code does not say whether the process is dead or the network broken: that of its
// TCP is "Endpoint timeout" for both (its uct_tcp_ep_set_failed). The socket does, because the
// kernel closes it with the process. Between hosts the news may be lost once, and is sent again after 200 ms.
constexpr Nanos kEndTime = 500 * kMillisecond;

UcxToken random_token() {
  UcxToken token;
  RUEDA_CHECK(getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size()),
              "getrandom gave too few bytes");
  return token;
}

}  // namespace

UcxLink::UcxLink(Rank peer, UniqueFd socket, const Site& site)
    : site_(site), peer_(peer), socket_(std::move(socket)), token_(random_token()) {
  wire_.worker = site_.worker;
  wire_.bounce_buffers = site_.bounce_buffers;
  wire_.me = static_cast<uint32_t>(site_.me);
  unsent_ = encode_greeting(token_, site_.worker->address());
  const Status watched = site_.poller->add(socket_.get(), watch_);
  watch_.ready |= EPOLLIN | EPOLLOUT;  // unknown until the first attempt
  if (!watched.is_ok()) leave_because_of(0, watched);
}

UcxLink::~UcxLink() {
  if (socket_.is_open()) site_.poller->remove(socket_.get());
  hang_up(socket_);
}

void UcxLink::open(uint16_t number) {
  opened_ |= 1U << number;
  UcxChannel& opened = channel(number);
  if (!is_alive()) opened.hang_up(peer_lost(name_of(number), how_), true);
}

UcxChannel& UcxLink::channel(uint16_t number) {
  std::unique_ptr<UcxChannel>& found = channels_[number];
  if (!found) found = std::make_unique<UcxChannel>(name_of(number), wire_, *site_.outcome);
  return *found;
}

UcxChannel* UcxLink::endpoint(uint16_t number) {
  const auto found = channels_.find(number);
  if (found == channels_.end() || !is_open(number)) return nullptr;
  return state_ >= LinkState::kUp || found->second->is_ended() ? found->second.get() : nullptr;
}

std::string UcxLink::trouble() const {
  if (state_ == LinkState::kGreeting)
    return "the connection is open, but the other end has not sent its UCX address";
  if (state_ == LinkState::kProving)
    return "the connection is proven, but no message comes through UCX (check UCX_NET_DEVICES and UCX_TLS)";
  return {};
}

void UcxLink::on_socket() {
  if (!is_alive() || is_hung_up_) return;
  if (!unsent_.empty() && watch_.has(EPOLLOUT)) send_greeting();
  if (!watch_.has(EPOLLIN | kHangup)) return;
  if (greeting_.missing() > 0) read_greeting();
  if (is_alive() && greeting_.missing() == 0) read_end();
}

void UcxLink::send_greeting() {
  const ssize_t sent = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
  if (sent >= 0 || errno == EINTR) return;
  if (errno == EAGAIN || errno == EWOULDBLOCK) return watch_.clear(EPOLLOUT);
  hung_up(sent);
}

// outcome: of a call for the socket.
void UcxLink::hung_up(ssize_t outcome) {
  is_hung_up_ = true;
  socket_end_ = outcome == 0 ? "closed its connection"
                             : "lost its connection (" + std::string(std::strerror(errno)) + ")";
}

void UcxLink::read_greeting() {
  std::array<std::byte, 4096> part;
  while (greeting_.missing() > 0) {
    const ssize_t got =
        ::recv(socket_.get(), part.data(), std::min(part.size(), greeting_.missing()), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return watch_.clear(EPOLLIN);
    if (got <= 0) return hung_up(got);
    const Status status = greeting_.feed(std::span(part).first(static_cast<size_t>(got)));
    if (!status.is_ok())
      return leave_because_of(
          0, {status.code, to_string(name_of(0)) + " broke the protocol: " + status.why + "."});
  }
  connect();
}

// After the greeting, the socket is silent until its end.
void UcxLink::read_end() {
  std::byte next{};
  const ssize_t got = ::recv(socket_.get(), &next, 1, MSG_DONTWAIT);
  if (got > 0 && next == kUcxIsLost) {
    is_hung_up_ = true;
    socket_end_ = "lost its UCX connection to this rank";
    return;
  }
  if (got > 0)
    return leave_because_of(
        0, {Code::kInternal, to_string(name_of(0)) + " broke the protocol: it says more than its address."});
  if (got < 0 && errno == EINTR) return;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return watch_.clear(EPOLLIN | kHangup);
  hung_up(got);
}

void UcxLink::connect() {
  wire_.token = greeting_.token();
  Result<ucx::Peer*> connected = site_.worker->connect(greeting_.address(), peer_error_);
  if (!connected.is_ok())
    return leave_because_of(
        0, {Code::kUnavailable,
            "UCX does not reach rank " + std::to_string(peer_) + ": " + connected.status().why +
                ". The two hosts have no card or protocol in common that UCX may use (UCX_TLS, "
                "UCX_NET_DEVICES; without UCX_TLS, rueda does not let UCX use TCP). Without such a card, "
                "set RUEDA_TRANSPORTS=shm,tcp."});
  wire_.peer = connected.value();
  state_ = LinkState::kProving;
  send_hello();
}

void UcxLink::send_hello() {
  hello_ = {.token = wire_.token, .from = wire_.me, .kind = PieceKind::kHello};
  hello_operation_.open_count = &wire_.open_count;
  site_.worker->send(wire_.peer, std::as_bytes(std::span(&hello_, 1)), {}, true, hello_operation_);
}

void UcxLink::on_message(const PieceHeader& header, ActiveMessage& active_message) {
  if (!is_alive()) return;
  has_heard_ = true;
  if (header.kind == PieceKind::kHello) return;
  if (header.channel >= Connector::kMaxChannels)
    return leave_because_of(
        0, {Code::kInternal, to_string(name_of(header.channel)) + " is beyond the 16 channels of a peer."});
  // The peer may be ready for a channel that this rank has not asked for yet.
  if (Status status = channel(header.channel).on_message(header, active_message); !status.is_ok())
    leave_because_of(header.channel, std::move(status));
}

bool UcxLink::has_work() const {
  if (is_hung_up() || (is_alive() && watch_.ready != 0 && (watch_.ready != EPOLLOUT || !unsent_.empty())))
    return true;
  if (state_ == LinkState::kLeaving && (is_drained() || drain_deadline_ == 0)) return true;
  if (state_ == LinkState::kProving && has_heard_) return true;
  if (is_alive() && has_failed()) return end_deadline_ == 0;
  return std::any_of(channels_.begin(), channels_.end(),
                     [this](const auto& named) { return is_open(named.first) && named.second->has_work(); });
}

bool UcxLink::progress(Nanos now) {
  const LinkState before = state_;
  if (is_hung_up()) leave(socket_end_);
  if (is_alive() && has_failed() && awaits_end(now)) return false;
  if (is_alive() && has_failed() && unsent_.empty())
    (void)::send(socket_.get(), &kUcxIsLost, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (is_alive() && peer_error_ != ucx::kOk)
    leave("lost its UCX connection (" + site_.worker->describe(peer_error_) + ")");
  if (is_alive() && !channel_error_.is_ok()) leave_because_of(failed_channel_, channel_error_);
  if (state_ == LinkState::kProving && has_heard_) state_ = LinkState::kUp;
  if (state_ == LinkState::kLeaving && drain_deadline_ == 0) drain_deadline_ = now + kLinkDrainTime;
  if (state_ == LinkState::kLeaving && is_drained())
    state_ = LinkState::kGone;  // UCX holds no buffer any more
  bool is_moved = state_ != before;
  if (state_ < LinkState::kUp) return is_moved;
  for (const auto& [number, channel] : channels_) {
    if (!is_open(number)) continue;
    const Result<bool> moved = channel->progress();
    if (!moved.is_ok() && moved.status().code == Code::kPeerLost && is_alive()) {
      channel_error_ = moved.status();
      failed_channel_ = number;
      return true;
    }
    if (!moved.is_ok()) return leave_because_of(number, moved.status()), true;
    is_moved |= moved.value();
  }
  return is_moved;
}

// Whether the socket may still say that the peer has ended.
bool UcxLink::awaits_end(Nanos now) {
  if (end_deadline_ == 0) end_deadline_ = now + kEndTime;
  return now < end_deadline_;
}

void UcxLink::ask_for_reports() {
  if (!is_up()) return;
  for (const auto& [number, channel] : channels_)
    if (!channel->is_confirmed()) channel->ask_for_report();
}

bool UcxLink::are_last_words_heard() const {
  return !is_up() || has_failed() || std::all_of(channels_.begin(), channels_.end(), [](const auto& named) {
    return named.second->is_confirmed();
  });
}

void UcxLink::disconnect() {
  if (ucx::Peer* peer = std::exchange(wire_.peer, nullptr)) site_.worker->disconnect(peer);
}

// culprit: the channel that ended the link by itself; -1: the peer is gone.
void UcxLink::leave(std::string how, int culprit, const Status& culprit_status) {
  if (!is_alive()) return;
  state_ = LinkState::kLeaving;
  how_ = std::move(how);
  disconnect();
  if (socket_.is_open()) site_.poller->remove(socket_.get());
  hang_up(socket_);  // so that the peer hears of it at once
  for (const auto& [number, channel] : channels_) {
    const bool is_culprit = number == culprit;
    channel->hang_up(is_culprit ? culprit_status : peer_lost(name_of(number), how_), culprit >= 0);
  }
}

void UcxLink::leave_because_of(uint16_t number, const Status& why) {
  leave("ended with another of its channels", number, why);
}

void UcxLink::drop_arrivals() {
  for (const auto& [number, channel] : channels_) channel->drop_arrivals();
}

void UcxLink::lose_all(const Status& why) {
  for (const auto& [number, channel] : channels_) is_open(number) ? channel->lose(why) : channel->end(why);
  end(why);
}

void UcxLink::end(const Status& why) {
  state_ = LinkState::kGone;
  how_ = "was closed here";
  if (socket_.is_open()) site_.poller->remove(socket_.get());
  hang_up(socket_);
  for (const auto& [number, channel] : channels_) channel->end(why);
}

}  // namespace rueda::transport
