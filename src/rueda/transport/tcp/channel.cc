#include "rueda/transport/tcp/channel.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "rueda/base/socket.h"

namespace rueda::transport {
namespace {

constexpr size_t kHeaderBytes = sizeof(MessageHeader);
constexpr size_t kMessagesPerCall = 8;
constexpr Nanos kLastWords =
    kSecond;                // how long a channel that cannot send waits for somebody to read the rest
constexpr int kRounds = 4;  // of sends and receives; then it is the turn of other channels

// What the kernel counts for a connection. Older kernels fill in less; the rest stays 0.
struct Counted {
  tcp_info info{};
  socklen_t bytes = sizeof(tcp_info);  // filled in; 0: nothing
};
Counted counted(const UniqueFd& fd) {
  Counted all;
  if (!fd.is_open() || ::getsockopt(fd.get(), IPPROTO_TCP, TCP_INFO, &all.info, &all.bytes) != 0)
    return {{}, 0};
  return all;
}

}  // namespace

TcpChannel::TcpChannel(ChannelName name, UniqueFd fd, Poller& poller, Outcome& outcome,
                       std::span<std::byte> scratch)
    : name_(name),
      fd_(std::move(fd)),
      poller_(poller),
      outcome_(outcome),
      requests_(outcome),
      scratch_(scratch) {
  if (Status status = poller_.add(fd_.get(), watch_); !status.is_ok()) lose(status);
  watch_.ready |= EPOLLIN | EPOLLOUT;               // unknown until the first attempt
  note_round_trip(counted(fd_).info.tcpi_min_rtt);  // the handshake has made some
}

TcpChannel::~TcpChannel() {
  if (fd_.is_open()) poller_.remove(fd_.get());
  hang_up(fd_);
}

void TcpChannel::send(Ticket ticket, std::span<const std::byte> bytes) {
  requests_.post(SendRequest{ticket, bytes});
}

void TcpChannel::recv(Ticket ticket, std::span<std::byte> bytes) {
  requests_.post(RecvRequest{.ticket = ticket, .into = bytes.data(), .bytes = bytes.size()});
}

void TcpChannel::recv_into(Ticket ticket, size_t bytes, size_t unit_bytes, Consumer& consumer) {
  RUEDA_CHECK(unit_bytes <= scratch_.size() / 2, "the unit does not fit into the receive buffer");
  requests_.post(
      RecvRequest{.ticket = ticket, .bytes = bytes, .unit_bytes = unit_bytes, .consumer = &consumer});
}

bool TcpChannel::has_work() const {
  if (requests_.is_ended()) return false;
  return (!requests_.sends.empty() && watch_.has(EPOLLOUT)) ||
         (!requests_.recvs.empty() && watch_.has(EPOLLIN)) || watch_.has(kHangup);
}

bool TcpChannel::progress() {
  bool is_moved = false;
  for (int round = 0; round < kRounds && has_work(); ++round) {
    if (watch_.has(kHangup)) on_hangup();
    const bool is_sent = send_some();
    const bool is_received = recv_some();
    if (!is_sent && !is_received) break;
    is_moved = true;
  }
  return is_moved;
}

bool TcpChannel::send_some() {
  if (requests_.sends.empty() || !watch_.has(EPOLLOUT) || !why_deaf_.is_ok()) return false;
  std::array<MessageHeader, kMessagesPerCall> headers;
  std::array<iovec, 2 * kMessagesPerCall> parts;
  size_t part_count = 0;
  size_t total = 0;
  size_t skip = sent_bytes_;
  const auto add = [&](const void* data, size_t size) {
    const size_t skipped = std::min(skip, size);
    skip -= skipped;
    const size_t part = std::min(size - skipped, scratch_.size() - total);  // small enough to stay in cache
    if (part == 0) return;
    parts[part_count++] = {const_cast<char*>(static_cast<const char*>(data)) + skipped, part};
    total += part;
  };
  const size_t count = std::min(kMessagesPerCall, requests_.sends.size());
  for (size_t i = 0; i < count && total < scratch_.size(); ++i) {
    const std::span<const std::byte> bytes = requests_.sends[i].bytes;
    headers[i] = {.sequence = send_sequence_ + static_cast<uint32_t>(i), .bytes = bytes.size()};
    add(&headers[i], kHeaderBytes);
    add(bytes.data(), bytes.size());
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = part_count;
  const ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    if (errno == EINTR) return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return watch_.clear(EPOLLOUT), false;
    return on_deaf_peer(), true;
  }
  if (static_cast<size_t>(sent) < total) watch_.clear(EPOLLOUT);  // full; free room will make a new event
  account_for(static_cast<size_t>(sent));
  return true;
}

void TcpChannel::account_for(size_t sent) {
  sent_bytes_ += sent;
  may_be_unsent_ = true;
  while (!requests_.sends.empty()) {
    const size_t whole = kHeaderBytes + requests_.sends.front().bytes.size();
    if (sent_bytes_ < whole) return;
    sent_bytes_ -= whole;
    ++send_sequence_;
    requests_.finish_send();
    if (requests_.sends.empty()) ++pauses_;
  }
  RUEDA_CHECK(sent_bytes_ == 0, "more was sent than was asked for");
}

// Kernels before 4.10 return a shorter struct.
std::optional<LinkUse> TcpChannel::use() const {
  const auto [info, bytes] = counted(fd_);
  if (bytes < offsetof(struct tcp_info, tcpi_sndbuf_limited)) return std::nullopt;
  const auto limited = static_cast<int64_t>(std::min(info.tcpi_rwnd_limited, info.tcpi_busy_time));
  return LinkUse{.sent_bytes = static_cast<int64_t>(info.tcpi_bytes_acked),
                 .busy = (static_cast<int64_t>(info.tcpi_busy_time) - limited) * kMicrosecond,
                 .pauses = pauses_,
                 .awaited_bytes = arrivals_.bytes(),
                 .awaited = arrivals_.time()};
}

// The kernel forgets a minimum after 5 minutes, and says ~0 while it knows none.
void TcpChannel::note_round_trip(uint32_t least_us) {
  if (least_us == 0 || least_us == UINT32_MAX) return;
  const Nanos known = round_trip(), least = least_us * kMicrosecond;
  if (known == 0 || least < known) round_trip_.store(least, std::memory_order_relaxed);
}

void TcpChannel::push() {
  if (requests_.is_ended()) return void(may_be_unsent_ = false);
  int unsent = 0;
  if (ioctl(fd_.get(), SIOCOUTQNSD, &unsent) != 0 || unsent == 0) return void(may_be_unsent_ = false);
  set_option(fd_.get(), IPPROTO_TCP, TCP_NODELAY);  // setting it again sends what can be sent
}

bool TcpChannel::recv_some() {
  if (requests_.recvs.empty() || !watch_.has(EPOLLIN)) return false;
  const RecvRequest& request = requests_.recvs.front();
  // Receives the header and the payload in one call: the receiver already knows the size and never reads
  // beyond the message.
  std::array<iovec, 2> parts;
  size_t part_count = 0;
  size_t total = 0;
  const auto add = [&](std::byte* data, size_t size) {
    if (size == 0) return;
    parts[part_count++] = {data, size};
    total += size;
  };
  add(reinterpret_cast<std::byte*>(&header_) + header_bytes_, kHeaderBytes - header_bytes_);
  const size_t missing = request.bytes - payload_bytes_;
  if (request.consumer == nullptr) {
    if (missing > 0) add(request.into + payload_bytes_, std::min(missing, scratch_.size()));
  } else {
    add(scratch_.data() + reassembly_.size(), std::min(missing, scratch_.size() - reassembly_.size()));
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = part_count;
  const Nanos before = monotonic_now();
  const ssize_t got = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
  if (got == 0) return lose(peer_lost(name_, "closed its connection")), true;
  if (got < 0) {
    if (errno == EINTR) return true;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return lose(lost_by_errno()), true;
    if (header_bytes_ == 0) arrivals_.end();
    return watch_.clear(EPOLLIN), false;
  }
  // A short read has emptied the socket, and the next bytes will make a new event. The end of the connection
  // makes only one event, so then the bit stays.
  if (static_cast<size_t>(got) < total && !is_hung_up_) watch_.clear(EPOLLIN);
  const bool is_empty = static_cast<size_t>(got) < total;
  arrivals_.read(static_cast<size_t>(got), is_empty, before, arrivals_.is_on() ? monotonic_now() : before);
  take(static_cast<size_t>(got));
  if (header_bytes_ == 0 && requests_.recvs.empty()) arrivals_.end();
  return true;
}

void TcpChannel::take(size_t arrived) {
  const size_t of_header = std::min(arrived, kHeaderBytes - header_bytes_);
  header_bytes_ += of_header;
  if (header_bytes_ < kHeaderBytes) return;
  const RecvRequest& request = requests_.recvs.front();
  if (of_header > 0) {
    Status status = check_header(header_, recv_sequence_, request.bytes, name_);
    if (!status.is_ok()) return lose(status);
  }
  deliver(arrived - of_header);
  if (payload_bytes_ < request.bytes) return;
  RUEDA_CHECK(reassembly_.size() == 0, "a message ended within a unit");
  header_bytes_ = payload_bytes_ = 0;
  ++recv_sequence_;
  requests_.finish_recv();
}

void TcpChannel::deliver(size_t payload) {
  const RecvRequest& request = requests_.recvs.front();
  payload_bytes_ += payload;
  if (request.consumer == nullptr || payload == 0) return;
  const auto piece = scratch_.first(reassembly_.size() + payload);
  reassembly_.prepend_to(piece);
  reassembly_.deliver(request, payload_bytes_, piece);
}

void TcpChannel::on_hangup() {
  watch_.clear(kHangup);
  is_hung_up_ = true;
  std::byte next{};
  const ssize_t got = ::recv(fd_.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got == 0) return lose(peer_lost(name_, "closed its connection"));
  if (got < 0) return lose(lost_by_errno());
  watch_.ready |= EPOLLIN;  // what the peer sent before can still be read
}

// The last messages of the peer, which often say why it went, may still be unread.
void TcpChannel::on_deaf_peer() {
  why_deaf_ = lost_by_errno();
  std::byte next{};
  if (::recv(fd_.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) return lose(why_deaf_);
  is_hung_up_ = true;
  watch_.ready |= EPOLLIN;
}

void TcpChannel::check_liveness(Nanos now, Nanos peer_timeout) {
  if (requests_.is_ended()) return;
  if (!why_deaf_.is_ok()) {
    // A channel that is read notices the end by itself. Others have some time to ask for the next message.
    if (deaf_since_ == 0) deaf_since_ = now;
    if (now - deaf_since_ >= kLastWords) lose(why_deaf_);
    return;
  }
  const auto [info, bytes] = counted(fd_);
  is_counted_ = bytes > 0;
  if (!is_counted_) return;
  note_round_trip(info.tcpi_min_rtt);
  const bool is_waiting = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
  host_silence_.look(is_waiting, info.tcpi_last_ack_recv * kMillisecond, now);
  const Nanos silence = host_silence_.age();
  if (silence > give_up_after(peer_timeout))
    lose(peer_lost(name_, "has acknowledged nothing for " + std::to_string(silence / kSecond) +
                              " s; its host is down, or the network to it is cut "
                              "(RUEDA_PEER_TIMEOUT_SECONDS sets the limit)"));
}

Status TcpChannel::lost_by_errno() const {
  return peer_lost(name_, "lost its connection (" + std::string(std::strerror(errno)) + ")");
}

void TcpChannel::lose(const Status& why) {
  if (requests_.is_ended()) return;
  outcome_.losses.push_back({name_.peer, name_.channel, why});
  end(why);
}

void TcpChannel::end(const Status& why) {
  if (requests_.is_ended()) return;
  requests_.end(why);
  if (fd_.is_open()) poller_.remove(fd_.get());
  hang_up(fd_);
  watch_.ready = 0;
}

}  // namespace rueda::transport
