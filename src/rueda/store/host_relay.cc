// One thread, one epoll, non-blocking sockets. As in the server of a store, a stranger is limited in number,
// bytes and time. What a client has said and the store has not taken yet is at most one message for each
// client, because a client waits for its reply. Most messages are passed on as they are; those that
// SharedReads and EntryBatches know become questions of the relay itself, which the store takes for those of
// one more client each.
#include "rueda/store/host_relay.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "rueda/base/thread.h"
#include "rueda/store/entry_batches.h"
#include "rueda/store/event_poll.h"
#include "rueda/store/hex.h"
#include "rueda/store/outgoing.h"
#include "rueda/store/relay_frame.h"
#include "rueda/store/shared_reads.h"
#include "rueda/store/socket.h"

namespace rueda::store {
namespace {

constexpr size_t kMaxRelayStrangers = 256;  // all ranks of a host may come at once
constexpr size_t kNameBytes = 16;           // of the digest in the name of the socket
constexpr uint32_t kListenerId = 1, kUpstreamId = 2, kFirstClient = 3;  // 0: EventPoll::kWakeId
// Numbers of frames below belong to clients, those from here on to questions of the relay: even ones to
// entries, odd ones to reads.
constexpr QuestionId kFirstQuestion = QuestionId{1} << 31;

// Nobody can tell from the name which job it is, and nobody without the secret knows it before.
SocketAddress relay_address(const TcpSite& site) {
  const std::string text = "relay|" + site.job + "|" + host_and_port(site.host, site.port) + "|" +
                           site.release + "|" + std::to_string(geteuid());
  const auto digest = hmac_sha256(site.secret.key, std::as_bytes(std::span(text)));
  return make_abstract_address("rueda-store-" + to_hex(std::span(digest).first(kNameBytes)));
}

Status vet_user(int fd) {
  if (peer_process(fd).uid == geteuid()) return Status::ok();
  return {Code::kUnavailable, "the relay of this host belongs to another user"};
}

struct RelayClient {
  UniqueFd fd;
  std::optional<Handshake> handshake;
  Deadline stranger_until = Deadline::at(0);
  Bytes in;  // of the handshake, then of one message
  Outgoing out;
  bool is_known = false;  // to the store
};

class Relay final : public HostRelay {
 public:
  Relay(const TcpSite& site, UniqueFd listener, UniqueFd upstream)
      : site_(site), listener_(std::move(listener)), upstream_(std::move(upstream)) {
    accepted_ = site.identity();
    accepted_.from = -1;
  }
  ~Relay() override {
    is_stopping_ = true;
    poll_.wake();
  }  // thread_ joins

  Status start() {
    if (!poll_.open() || !poll_.watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListenerId) ||
        !poll_.watch(EPOLL_CTL_ADD, upstream_.get(), EPOLLIN, kUpstreamId))
      return {Code::kUnavailable, std::string("cannot relay to the store: ") + std::strerror(errno)};
    return start_thread(thread_, "the relay to the store", [this] { run(); });
  }

 private:
  void run() {
    pthread_setname_np(pthread_self(), "rueda-relay");
    std::array<epoll_event, 64> events{};
    bool is_up = true;
    while (is_up && !is_stopping_) {
      const int ready = poll_.wait(events, next_timeout_ms());
      for (int i = 0; i < ready && is_up && !is_stopping_; ++i) {
        const auto id = static_cast<uint32_t>(events[static_cast<size_t>(i)].data.u64);
        if (id == kListenerId)
          accept_some();
        else if (id == kUpstreamId)
          is_up = receive_from_store();
        else if (id != EventPoll::kWakeId)
          serve(id, events[static_cast<size_t>(i)].events);
      }
      is_up = is_up && answer_together();
      is_up = is_up && upstream_out_.flush(upstream_.get()) &&
              poll_.watch(EPOLL_CTL_MOD, upstream_.get(),
                          upstream_out_.is_empty() ? EPOLLIN : EPOLLIN | EPOLLOUT, kUpstreamId);
      while (!strangers_.empty() && clients_.at(strangers_.front()).stranger_until.is_past())
        drop(strangers_.front());
    }
    listener_.reset();  // the others dial the store themselves from now on
    clients_.clear();
  }

  [[nodiscard]] int next_timeout_ms() const {
    std::optional<Nanos> first;
    for (const std::optional<Nanos> due : {reads_.due(), entries_.due()})
      if (due) first = std::min(first.value_or(*due), *due);
    if (!strangers_.empty()) {
      const Nanos until = clients_.at(strangers_.front()).stranger_until.when();
      first = std::min(first.value_or(until), until);
    }
    return first ? Deadline::at(*first).timeout_ms() : -1;
  }

  // False: the questions of this relay are too many.
  bool answer_together() {
    const Nanos now = monotonic_now();
    reads_.expire(now, board_);
    entries_.expire(now, board_);
    const BoardOutput out = std::exchange(board_, {});
    for (const auto& [question, command] : out.questions)
      append_frames(upstream_out_.bytes, question, encode(command));
    for (const auto& [client, reply] : out.replies) {
      const auto at = clients_.find(client);
      if (at == clients_.end()) continue;
      const Bytes message = encode(reply);
      at->second.out.bytes.insert(at->second.out.bytes.end(), message.begin(), message.end());
      if (!send_to(client, at->second)) drop(client);
    }
    return is_upstream_bounded();
  }

  void accept_some() {
    for (int i = 0; i < kAcceptsPerRound; ++i) {
      UniqueFd fd = accept_caller(listener_.get());
      if (!fd.is_open()) {
        // Without descriptors the queue would wake this thread for ever. The callers dial the store.
        if (errno == EMFILE || errno == ENFILE) listener_.reset();
        return;
      }
      if (strangers_.size() >= kMaxRelayStrangers) drop(strangers_.front());
      if (clients_.size() >= kMaxRelayed || !vet_user(fd.get()).is_ok()) continue;
      const uint32_t id = next_id_++;
      if (!poll_.watch(EPOLL_CTL_ADD, fd.get(), EPOLLIN, id)) continue;
      RelayClient client;
      client.fd = std::move(fd);
      client.handshake = Handshake::server(site_.secret, accepted_, site_.release);
      client.stranger_until = Deadline::after(kStrangerTime);
      clients_.emplace(id, std::move(client));
      strangers_.push_back(id);
    }
  }

  void drop(uint32_t id) {
    const auto at = clients_.find(id);
    if (at == clients_.end()) return;
    if (at->second.handshake) strangers_.remove(id);
    if (at->second.is_known) append_frames(upstream_out_.bytes, id, {});
    clients_.erase(at);
    reads_.forget(id);
    entries_.forget(id);
  }

  void serve(uint32_t id, uint32_t events) {
    const auto at = clients_.find(id);
    if (at == clients_.end()) return;
    RelayClient& client = at->second;
    bool is_alive = (events & EPOLLIN) != 0 || (events & (EPOLLERR | EPOLLHUP)) == 0;
    if (is_alive && (events & EPOLLIN) != 0) is_alive = receive_from(id, client);
    if (!is_alive || !send_to(id, client)) drop(id);
  }

  bool send_to(uint32_t id, RelayClient& client) {
    if (!client.out.flush(client.fd.get())) return false;
    return poll_.watch(EPOLL_CTL_MOD, client.fd.get(), client.out.is_empty() ? EPOLLIN : EPOLLIN | EPOLLOUT,
                       id);
  }

  bool receive_from(uint32_t id, RelayClient& client) {
    std::array<std::byte, kMaxFrameBytes> buffer;
    const size_t most = client.handshake ? kMaxHandshakeBytes : buffer.size();
    const ssize_t got = recv(client.fd.get(), buffer.data(), most, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (got == 0) return false;
    const auto bytes = std::span<const std::byte>(buffer).first(static_cast<size_t>(got));
    if (client.handshake) return shake_hands(id, client, bytes);
    client.in.insert(client.in.end(), bytes.begin(), bytes.end());
    const Result<size_t> whole = message_bytes(client.in);
    if (!whole.is_ok()) return false;
    if (whole.value() == 0 || client.in.size() < whole.value()) return true;
    if (client.in.size() > whole.value()) return false;  // one command at a time
    const Bytes message = std::exchange(client.in, {});
    const auto op = static_cast<Op>(message[kLengthBytes]);
    if (op == Op::kShare || op == Op::kGive || op == Op::kAnnounce) return take(id, message);
    client.is_known = true;
    append_frames(upstream_out_.bytes, id, message);
    return is_upstream_bounded();
  }

  bool take(ClientId id, std::span<const std::byte> message) {
    const Result<Command> command = decode_command(message.subspan(kLengthBytes));
    if (!command.is_ok()) return false;
    if (command.value().op == Op::kShare)
      reads_.take(id, command.value(), monotonic_now(), board_);
    else
      entries_.take(id, command.value(), monotonic_now(), board_);
    return true;
  }

  [[nodiscard]] bool is_upstream_bounded() const {
    return upstream_out_.bytes.size() <= (clients_.size() + 1) * (kLengthBytes + kMaxStoreMessageBytes);
  }

  // A client sends no command before it has the welcome, so no byte can follow its handshake.
  bool shake_hands(uint32_t id, RelayClient& client, std::span<const std::byte> arrived) {
    client.in.insert(client.in.end(), arrived.begin(), arrived.end());
    const Result<size_t> taken = client.handshake->feed(client.in);
    const Bytes out = client.handshake->take_output();
    client.out.bytes.insert(client.out.bytes.end(), out.begin(), out.end());
    if (!taken.is_ok()) {
      client.out.flush(client.fd.get());
      return false;
    }
    client.in.erase(client.in.begin(), client.in.begin() + static_cast<ptrdiff_t>(taken.value()));
    if (!client.handshake->is_done()) return true;
    client.handshake.reset();
    strangers_.remove(id);
    return client.in.empty();
  }

  // False: the store has gone, or sends what it must not.
  bool receive_from_store() {
    std::array<std::byte, kMaxFrameBytes> buffer;
    const ssize_t got = recv(upstream_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (got == 0) return false;
    upstream_in_.insert(upstream_in_.end(), buffer.begin(), buffer.begin() + got);
    size_t used = 0;
    while (true) {
      const auto frame = first_frame(std::span<const std::byte>(upstream_in_).subspan(used));
      if (!frame.is_ok()) return false;
      if (!frame.value()) break;
      const bool is_answer = frame.value()->client >= kFirstQuestion;
      if (is_answer && !take_answer(*frame.value())) return false;
      if (!is_answer) pass_on(*frame.value());
      used += frame.value()->size();
    }
    upstream_in_.erase(upstream_in_.begin(), upstream_in_.begin() + static_cast<ptrdiff_t>(used));
    return true;
  }

  bool take_answer(const RelayFrame& frame) {
    if (frame.bytes.empty()) return false;  // the store refuses a question
    Bytes& in = answers_[frame.client];
    in.insert(in.end(), frame.bytes.begin(), frame.bytes.end());
    const Result<size_t> whole = message_bytes(in);
    if (!whole.is_ok()) return false;
    if (whole.value() == 0 || in.size() < whole.value()) return true;
    const Result<Reply> reply = decode_reply(std::span<const std::byte>(in).subspan(kLengthBytes));
    if (!reply.is_ok()) return false;
    answers_.erase(frame.client);
    append_frames(upstream_out_.bytes, frame.client, {});
    if ((frame.client - kFirstQuestion) % 2 == 0)
      entries_.answered(frame.client, reply.value(), board_);
    else
      reads_.answered(frame.client, reply.value(), monotonic_now(), board_);
    return true;
  }

  void pass_on(const RelayFrame& frame) {
    const auto at = clients_.find(frame.client);
    if (at == clients_.end()) return;  // it has gone meanwhile
    RelayClient& client = at->second;
    if (frame.bytes.empty()) {  // the store refuses it
      client.is_known = false;
      return drop(frame.client);
    }
    client.out.bytes.insert(client.out.bytes.end(), frame.bytes.begin(), frame.bytes.end());
    if (!send_to(frame.client, client)) drop(frame.client);
  }

  const TcpSite site_;
  ConnectionIdentity accepted_;
  UniqueFd listener_, upstream_;
  Bytes upstream_in_;
  Outgoing upstream_out_;
  std::map<uint32_t, RelayClient> clients_;
  std::list<uint32_t> strangers_;  // oldest first
  uint32_t next_id_ = kFirstClient;
  EntryBatches entries_{kFirstQuestion};
  SharedReads reads_{kFirstQuestion + 1};
  BoardOutput board_;                    // what they want sent, until the end of the turn
  std::map<QuestionId, Bytes> answers_;  // begun
  EventPoll poll_;
  std::atomic<bool> is_stopping_{false};
  std::jthread thread_;  // the last member, so it joins before anything it uses is destroyed
};

}  // namespace

Result<UniqueFd> bind_host_relay(const TcpSite& site) {
  return open_listening(relay_address(site), SOMAXCONN);
}

Result<std::unique_ptr<HostRelay>> serve_host_relay(const TcpSite& site, UniqueFd listener,
                                                    UniqueFd upstream) {
  auto relay = std::make_unique<Relay>(site, std::move(listener), std::move(upstream));
  if (Status status = relay->start(); !status.is_ok()) return status;
  return std::unique_ptr<HostRelay>(std::move(relay));
}

Result<UniqueFd> dial_host_relay(const TcpSite& site, Deadline deadline) {
  Result<UniqueFd> fd = connect_to(relay_address(site), deadline);
  if (!fd.is_ok()) return fd;
  if (Status status = vet_user(fd.value().get()); !status.is_ok()) return status;
  return fd;
}

}  // namespace rueda::store
