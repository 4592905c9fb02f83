// One thread, one epoll, non-blocking sockets. A stranger (a client that is not authenticated yet) may hold
// one of kMaxStrangers connections for kStrangerTime, and makes the server keep at most one handshake
// message. When all are taken, the oldest stranger is closed, so that idle connections cannot keep ranks out.
// One connection may carry the commands of many clients (relay_frame.h); each of them is served as if it had
// a connection of its own. A get that must wait is parked until its key is set, or until the time is over
// that its client gives it.
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>

#include "rueda/base/refusal_log.h"
#include "rueda/base/thread.h"
#include "rueda/store/event_poll.h"
#include "rueda/store/key_values.h"
#include "rueda/store/messages.h"
#include "rueda/store/other_build.h"
#include "rueda/store/outgoing.h"
#include "rueda/store/relay_frame.h"
#include "rueda/store/socket.h"
#include "rueda/store/store.h"

namespace rueda::store {
namespace {

constexpr size_t kMaxStrangers = 256;               // a rank's handshake takes about a millisecond
constexpr Nanos kAcceptPause = 100 * kMillisecond;  // if descriptors run out and no stranger can be closed
constexpr Nanos kLongestPark = 3'600 * kSecond;

using ConnectionId = uint64_t;
constexpr ConnectionId kListenerId = 1, kFirstConnection = 2;  // 0: EventPoll::kWakeId

struct Connection {
  UniqueFd fd;
  std::optional<Handshake> handshake;  // empty once the peer has proved itself
  Deadline stranger_until = Deadline::at(0);
  Bytes in;
  Outgoing out;
  std::string awaited;  // key of a parked get, otherwise empty
  Nanos parked_until = 0;
  uint32_t events = EPOLLIN;
  // Of a connection that carries frames: the clients behind it, by their numbers there.
  bool is_relay = false;
  std::map<uint32_t, ConnectionId> behind = {};
  // Of a client behind one, which has no socket: that connection, and the number of the client.
  ConnectionId via = kListenerId;
  uint32_t number = 0;

  [[nodiscard]] bool is_behind_relay() const { return via != kListenerId; }
};

bool is_rank_of_other_build(const Handshake& handshake) {
  return handshake.outcome() == HandshakeOutcome::kWrongProtocol && handshake.identity().from >= 0;
}

// What is said of a caller that is refused. The address is all that is known of one whose wire version is
// another one.
Status refusal_of(const Connection& connection, Status why) {
  const Handshake& handshake = *connection.handshake;
  if (!is_other_build(handshake.outcome())) return why;
  const Rank rank = handshake.identity().from;
  const std::string who = rank < 0 ? "a process" : "rank " + std::to_string(rank);
  why.why = other_build({who + " on " + peer_address(connection.fd.get()).ip(), handshake.peer()},
                        {"this store", handshake.mine()}, kUseEither);
  return why;
}

class Server final : public StoreServer {
 public:
  Server(UniqueFd listener, std::string address, ConnectionIdentity accepted, Secret secret,
         std::string release)
      : listener_(std::move(listener)),
        address_(std::move(address)),
        port_(own_address(listener_.get()).port()),
        accepted_(std::move(accepted)),
        secret_(std::move(secret)),
        release_(std::move(release)) {}

  ~Server() override {
    is_stopping_ = true;
    poll_.wake();
  }  // thread_ joins

  Status start() {
    if (!poll_.open() || !poll_.watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListenerId))
      return {Code::kUnavailable, "cannot serve the store at " + url() + ": " + std::strerror(errno)};
    return start_thread(thread_, "the store", [this] { run(); });
  }

  [[nodiscard]] int port() const override { return port_; }
  [[nodiscard]] std::string url() const override { return "tcp://" + host_and_port(address_, port_); }
  void put(std::string key, std::string value) override {
    {
      const std::scoped_lock lock(mutex_);
      puts_.emplace_back(std::move(key), std::move(value));
    }
    poll_.wake();
  }
  [[nodiscard]] std::string last_refusal() const override {
    const std::scoped_lock lock(mutex_);
    return last_refusal_;
  }
  [[nodiscard]] std::string other_build_since(Nanos began) const override {
    const std::scoped_lock lock(mutex_);
    return other_build_.first >= began ? other_build_.second : "";
  }
  [[nodiscard]] int64_t commands() const override { return commands_; }
  void on_set(std::function<void(std::string_view, std::string_view)> callback) override {
    const std::scoped_lock lock(mutex_);
    callback_ = std::move(callback);
  }

 private:
  // Everything below is for the server thread only.
  void run() {
    pthread_setname_np(pthread_self(), "rueda-store");
    std::array<epoll_event, 256> events{};
    while (!is_stopping_) {
      const int ready = poll_.wait(events, next_timeout_ms());
      for (int i = 0; i < ready && !is_stopping_; ++i) {
        const ConnectionId id = events[static_cast<size_t>(i)].data.u64;
        if (id == kListenerId)
          accept_some();
        else if (id == EventPoll::kWakeId)
          carry_out_puts();
        else
          serve(id, events[static_cast<size_t>(i)].events);
      }
      close_late_strangers();
      answer_late_gets();
      resume_accepting();
    }
  }

  void carry_out_puts() {
    poll_.end_of_wake();
    std::vector<std::pair<std::string, std::string>> puts;
    {
      const std::scoped_lock lock(mutex_);
      puts = std::exchange(puts_, {});
    }
    for (const auto& [key, value] : puts)
      if (values_.set(key, value).is_ok()) after_set(key, value);
  }

  [[nodiscard]] int next_timeout_ms() const {
    int timeout = -1;
    const auto consider = [&](Deadline deadline) {
      timeout = timeout < 0 ? deadline.timeout_ms() : std::min(timeout, deadline.timeout_ms());
    };
    if (accept_again_) consider(*accept_again_);
    if (!strangers_.empty()) consider(connections_.at(strangers_.front()).stranger_until);
    if (!parks_.empty()) consider(Deadline::at(parks_.begin()->first));
    return timeout;
  }

  void accept_some() {
    for (int i = 0; i < kAcceptsPerRound; ++i) {
      UniqueFd fd = accept_caller(listener_.get());
      if (!fd.is_open()) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) on_no_descriptor();
        return;  // otherwise nobody waits, or the peer has already gone
      }
      if (strangers_.size() >= kMaxStrangers) close_connection(strangers_.front());
      const ConnectionId id = next_id_++;
      if (!poll_.watch(EPOLL_CTL_ADD, fd.get(), EPOLLIN, id)) continue;
      Connection connection;
      connection.fd = std::move(fd);
      connection.handshake = Handshake::server(secret_, accepted_, release_);
      connection.stranger_until = Deadline::after(kStrangerTime);
      connections_.emplace(id, std::move(connection));
      strangers_.push_back(id);
    }
  }

  // The listener stays readable while nothing can be accepted. Without a pause this thread would spin.
  void on_no_descriptor() {
    if (!strangers_.empty()) return close_connection(strangers_.front());
    accept_again_ = Deadline::after(kAcceptPause);
    poll_.watch(EPOLL_CTL_MOD, listener_.get(), 0, kListenerId);
  }

  void resume_accepting() {
    if (!accept_again_ || !accept_again_->is_past()) return;
    accept_again_.reset();
    poll_.watch(EPOLL_CTL_MOD, listener_.get(), EPOLLIN, kListenerId);
  }

  void close_late_strangers() {
    while (!strangers_.empty() && connections_.at(strangers_.front()).stranger_until.is_past())
      close_connection(strangers_.front());
  }

  void close_connection(ConnectionId id) {
    const auto at = connections_.find(id);
    if (at == connections_.end()) return;
    if (at->second.handshake) strangers_.remove(id);
    if (!at->second.awaited.empty()) unpark(at->second, id);
    if (at->second.is_behind_relay()) connections_.at(at->second.via).behind.erase(at->second.number);
    const auto behind = std::exchange(at->second.behind, {});
    for (const auto& [number, client] : behind) close_behind(client);
    connections_.erase(at);
  }

  // A client behind a connection that is being closed.
  void close_behind(ConnectionId id) {
    const auto at = connections_.find(id);
    if (!at->second.awaited.empty()) unpark(at->second, id);
    connections_.erase(at);
  }

  void park(Connection& connection, ConnectionId id, const Command& command) {
    connection.awaited = command.key;
    connection.parked_until = monotonic_now() + std::clamp<Nanos>(command.amount, 0, kLongestPark);
    parked_.emplace(command.key, id);
    parks_.emplace(connection.parked_until, id);
  }

  void unpark(Connection& connection, ConnectionId id) {
    parks_.erase({connection.parked_until, id});
    const auto [first, last] = parked_.equal_range(connection.awaited);
    for (auto at = first; at != last; ++at)
      if (at->second == id) {
        parked_.erase(at);
        break;
      }
    connection.awaited.clear();
  }

  // A client that stopped waiting by itself would have to close its connection, and to prove itself again.
  void answer_late_gets() {
    const Nanos now = monotonic_now();
    while (!parks_.empty() && parks_.begin()->first <= now) {
      const ConnectionId id = parks_.begin()->second;
      Connection& connection = connections_.at(id);
      unpark(connection, id);
      connection.out.bytes = encode(Reply{.code = Code::kTimeout, .text = ""});
      if (flush(connection)) rearm(id, connection);
    }
  }

  void serve(ConnectionId id, uint32_t events) {
    const auto at = connections_.find(id);
    if (at == connections_.end()) return;  // closed earlier in this round
    Connection& connection = at->second;
    bool is_alive = (events & (EPOLLERR | EPOLLHUP)) == 0 || (events & EPOLLIN) != 0;
    if (is_alive && (events & EPOLLIN) != 0) is_alive = read_some(connection);
    if (is_alive && connection.handshake) is_alive = shake_hands(id, connection);
    if (is_alive && !connection.handshake) is_alive = take_input(id, connection);
    if (is_alive) is_alive = flush(connection) && take_input(id, connection) && rearm(id, connection);
    if (!is_alive) close_connection(id);
  }

  bool read_some(Connection& connection) {
    std::array<std::byte, 65'536> buffer;
    const size_t most = connection.handshake ? kMaxHandshakeBytes : buffer.size();
    const ssize_t got = recv(connection.fd.get(), buffer.data(), most, 0);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    connection.in.insert(connection.in.end(), buffer.begin(), buffer.begin() + got);
    return got > 0;
  }

  bool shake_hands(ConnectionId id, Connection& connection) {
    const Result<size_t> taken = connection.handshake->feed(connection.in);
    const Bytes out = connection.handshake->take_output();
    connection.out.bytes.insert(connection.out.bytes.end(), out.begin(), out.end());
    if (!taken.is_ok()) {
      const Status why = refusal_of(connection, taken.status());
      refusals_.warn("the store at " + url(), why);
      {
        const std::scoped_lock lock(mutex_);
        last_refusal_ = why.why;
        if (is_rank_of_other_build(*connection.handshake)) other_build_ = {monotonic_now(), why.why};
      }
      flush(connection);  // sends the outcome, without waiting for its arrival
      return false;
    }
    connection.in.erase(connection.in.begin(), connection.in.begin() + static_cast<ptrdiff_t>(taken.value()));
    if (connection.handshake->is_done()) {
      connection.is_relay = connection.handshake->identity().channel == kRelayChannel;
      connection.handshake.reset();
      strangers_.remove(id);
    }
    return true;
  }

  bool take_input(ConnectionId id, Connection& connection) {
    if (!connection.is_relay) return answer_commands(id, connection);
    size_t used = 0;
    while (true) {
      const auto frame = first_frame(std::span<const std::byte>(connection.in).subspan(used));
      if (!frame.is_ok()) return false;
      if (!frame.value()) break;
      if (!take_frame(id, connection, *frame.value())) return false;
      used += frame.value()->size();
    }
    connection.in.erase(connection.in.begin(), connection.in.begin() + static_cast<ptrdiff_t>(used));
    // Each client has at most one reply under way, unless the relay is faulty.
    return connection.out.bytes.size() <=
           (connection.behind.size() + 1) * (kLengthBytes + kMaxStoreMessageBytes);
  }

  // False: the relay is faulty. A faulty client is closed, and the relay told.
  bool take_frame(ConnectionId id, Connection& relay, const RelayFrame& frame) {
    const auto [at, is_new] = relay.behind.try_emplace(frame.client, next_id_);
    if (is_new) {
      if (relay.behind.size() > kMaxRelayed) return false;
      Connection& made = connections_[next_id_++];
      made.via = id;
      made.number = frame.client;
    }
    const ConnectionId client = at->second;
    if (frame.bytes.empty()) {
      close_connection(client);
      return true;
    }
    Connection& connection = connections_.at(client);
    connection.in.insert(connection.in.end(), frame.bytes.begin(), frame.bytes.end());
    if (answer_commands(client, connection)) return true;
    close_connection(client);
    append_frames(relay.out.bytes, frame.client, {});
    return true;
  }

  // Commands are taken one at a time, and none while a reply is unsent or a get is parked. So a client that
  // does not read cannot make the server keep more than one reply.
  bool answer_commands(ConnectionId id, Connection& connection) {
    while (!connection.handshake && connection.out.is_empty() && connection.awaited.empty()) {
      const Result<size_t> whole = message_bytes(connection.in);
      if (!whole.is_ok()) return false;
      if (whole.value() == 0 || connection.in.size() < whole.value()) return true;
      const auto body = std::span<const std::byte>(connection.in).first(whole.value()).subspan(kLengthBytes);
      const Result<Command> command = decode_command(body);
      if (!command.is_ok()) return false;
      connection.in.erase(connection.in.begin(),
                          connection.in.begin() + static_cast<ptrdiff_t>(whole.value()));
      if (const std::optional<Reply> reply = perform(id, connection, command.value()))
        connection.out.bytes = encode(*reply);
      if (!flush(connection)) return false;
    }
    // The protocol allows one command at a time. A client that sends more than another message is faulty.
    return connection.in.size() <= kLengthBytes + kMaxStoreMessageBytes;
  }

  // Empty if the command is parked.
  std::optional<Reply> perform(ConnectionId id, Connection& connection, const Command& command) {
    ++commands_;
    const std::string* value = values_.find(command.key);
    switch (command.op) {
      case Op::kSet: {
        const Status status = values_.set(command.key, command.value);
        if (status.is_ok()) after_set(command.key, command.value);
        return Reply{.code = status.code, .text = status.why};
      }
      case Op::kShare:
        if (command.amount <= 0 && value == nullptr) return Reply{.code = Code::kUnavailable, .text = ""};
        [[fallthrough]];
      case Op::kGet:
        if (value != nullptr) return Reply{.text = *value};
        if (Status status = check_key(command.key); !status.is_ok())
          return Reply{.code = status.code, .text = status.why};
        park(connection, id, command);
        return std::nullopt;
      case Op::kTryGet:
        if (value != nullptr) return Reply{.text = *value};
        return Reply{.code = Code::kUnavailable, .text = ""};
      case Op::kAdd: {
        const Result<int64_t> sum = values_.add(command.key, command.amount);
        if (!sum.is_ok()) return Reply{.code = sum.status().code, .text = sum.status().why};
        after_set(command.key, std::to_string(sum.value()));
        return Reply{.text = "", .sum = sum.value()};
      }
      case Op::kCompareAndSet: {
        const Result<std::string> now = values_.compare_and_set(command.key, command.expected, command.value);
        if (!now.is_ok()) return Reply{.code = now.status().code, .text = now.status().why};
        if (now.value() == command.value) after_set(command.key, command.value);
        return Reply{.text = now.value()};
      }
      case Op::kRemovePrefix:
        values_.remove_prefix(command.key);
        return Reply{};
      case Op::kGive:
      case Op::kAnnounce:
        break;  // only a relay takes them
    }
    return Reply{.code = Code::kUnsupported, .text = "this store does not know the command"};
  }

  void after_set(const std::string& key, const std::string& value) {
    const auto [first, last] = parked_.equal_range(key);
    std::vector<ConnectionId> waiters;
    for (auto at = first; at != last; ++at) waiters.push_back(at->second);
    parked_.erase(first, last);
    for (const ConnectionId id : waiters) {
      Connection& connection = connections_.at(id);
      parks_.erase({connection.parked_until, id});
      connection.awaited.clear();
      connection.out.bytes = encode(Reply{.text = value});
      // A waiting client that has gone is noticed at its own next event. Closing it here could close the
      // connection that is being served.
      if (flush(connection)) rearm(id, connection);
    }
    std::function<void(std::string_view, std::string_view)> callback;
    {
      const std::scoped_lock lock(mutex_);
      callback = callback_;
    }
    if (callback) callback(key, value);
  }

  bool flush(Connection& connection) {
    if (!connection.is_behind_relay()) return connection.out.flush(connection.fd.get());
    if (!connection.out.is_empty())
      append_frames(connections_.at(connection.via).out.bytes, connection.number, connection.out.bytes);
    connection.out.bytes.clear();
    return true;
  }

  bool rearm(ConnectionId id, Connection& connection) {
    if (connection.is_behind_relay()) {
      Connection& relay = connections_.at(connection.via);
      return flush(relay) && rearm(connection.via, relay);
    }
    const uint32_t events = connection.out.is_empty() ? EPOLLIN : EPOLLOUT;
    if (events == connection.events) return true;
    connection.events = events;
    return poll_.watch(EPOLL_CTL_MOD, connection.fd.get(), events, id);
  }

  UniqueFd listener_;
  const std::string address_;
  const int port_;
  const ConnectionIdentity accepted_;
  const Secret secret_;
  const std::string release_;

  mutable std::mutex mutex_;  // of the four below
  std::string last_refusal_;
  std::pair<Nanos, std::string> other_build_;  // when, and what was said
  std::function<void(std::string_view, std::string_view)> callback_;
  std::vector<std::pair<std::string, std::string>> puts_;

  std::atomic<int64_t> commands_{0};
  KeyValues values_;
  std::unordered_map<ConnectionId, Connection> connections_;
  std::list<ConnectionId> strangers_;                // oldest first
  std::multimap<std::string, ConnectionId> parked_;  // gets that wait for a key
  std::set<std::pair<Nanos, ConnectionId>> parks_;   // the same, by when their time is over
  ConnectionId next_id_ = kFirstConnection;
  RefusalLog refusals_;
  std::optional<Deadline> accept_again_;

  EventPoll poll_;
  std::atomic<bool> is_stopping_{false};
  std::jthread thread_;  // the last member, so it joins before anything it uses is destroyed
};

}  // namespace

Result<std::unique_ptr<StoreServer>> serve_store(const std::string& address, int port, const std::string& job,
                                                 const Secret& secret, const std::string& release) {
  Result<UniqueFd> listener = listen_on(address, port);
  if (!listener.is_ok()) return listener.status();
  ConnectionIdentity accepted;
  accepted.job = job;
  accepted.kind = ConnectionKind::kStore;
  accepted.protocol = kStoreProtocol;
  auto server = std::make_unique<Server>(std::move(listener).value(), address, accepted, secret, release);
  if (Status status = server->start(); !status.is_ok()) return status;
  return std::unique_ptr<StoreServer>(std::move(server));
}

}  // namespace rueda::store
