#include "rueda/store/tcp_store.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "rueda/base/sleep.h"
#include "rueda/store/entries.h"
#include "rueda/store/host_relay.h"
#include "rueda/store/key_values.h"
#include "rueda/store/messages.h"
#include "rueda/store/other_build.h"
#include "rueda/store/relay_frame.h"
#include "rueda/store/socket.h"

namespace rueda::store {
namespace {

constexpr Nanos kFirstPause = 5 * kMillisecond;
constexpr Nanos kLongestPause =
    200 * kMillisecond;  // so that thousands of waiting ranks send fewer than 10⁴ SYN/s
constexpr Nanos kLongestAttempt = 5 * kSecond;
constexpr Nanos kRelayAnswers = kSecond;     // it may be dialling; a rank that it keeps waiting dials as well
constexpr Nanos kRelayWrites = 3 * kSecond;  // entries of a host, for which it may wait a second
constexpr int kMostWrites = 8;               // of one entry, while rivals write the same key
constexpr uint16_t kOwnChannel = 0;
constexpr Nanos kGrace = kSecond;  // for the server to say that the time for a key is over

Deadline earlier(Deadline a, Deadline b) { return a.when() < b.when() ? a : b; }

Status another_build(const TcpSite& site, const Handshake& handshake) {
  const std::string server = (site.is_launchers ? "the launcher's store at tcp://" : "the store at tcp://") +
                             host_and_port(site.host, site.port);
  return {Code::kPermissionDenied, other_build({site.caller, handshake.mine()}, {server, handshake.peer()},
                                               site.is_launchers ? kUseItsLauncher : kUseOneInstallation)};
}

// Performs the handshake of the client. The server sends nothing unasked, so no byte of the stream
// can follow it.
Status shake_hands(int fd, const TcpSite& site, uint16_t channel, Deadline deadline,
                   HandshakeOutcome& refused) {
  ConnectionIdentity mine = site.identity();
  mine.channel = channel;
  Handshake handshake = Handshake::client(site.secret, mine, site.release);
  std::array<std::byte, kMaxHandshakeBytes> buffer{};
  while (true) {
    const Bytes out = handshake.take_output();
    if (Status status = send_all(fd, out, deadline); !status.is_ok()) return status;
    if (handshake.is_done()) return Status::ok();
    const Result<size_t> got = receive_some(fd, buffer, deadline);
    if (!got.is_ok()) return got.status();
    const Result<size_t> taken = handshake.feed(std::span(buffer).first(got.value()));
    if (!taken.is_ok()) {
      [[maybe_unused]] const Status last = send_all(fd, handshake.take_output(), deadline);
      refused = handshake.outcome();
      if (is_other_build(refused)) return another_build(site, handshake);
      return taken.status();
    }
    if (taken.value() != got.value())
      return {Code::kPermissionDenied, "the peer sent bytes without a command"};
  }
}

Result<UniqueFd> dial_once(const TcpSite& site, uint16_t channel, Deadline deadline,
                           HandshakeOutcome& refused) {
  const Result<std::vector<SocketAddress>> addresses = resolve(site.host, site.port);
  if (!addresses.is_ok()) return addresses.status();
  Status last(Code::kUnavailable, "the name has no address");
  for (const SocketAddress& address : addresses.value()) {
    const Deadline attempt = earlier(deadline, Deadline::after(kLongestAttempt));
    Result<UniqueFd> fd = connect_to(address, attempt);
    last = fd.is_ok() ? shake_hands(fd.value().get(), site, channel, attempt, refused) : fd.status();
    if (last.is_ok()) return fd;
    if (last.code == Code::kPermissionDenied) break;
  }
  if (is_other_build(refused)) return last;  // names the store
  return Status(last.code, "store at tcp://" + host_and_port(site.host, site.port) + ": " + last.why);
}

// To the relay of this host. kUnavailable: nobody relays.
Result<UniqueFd> dial_relay(const TcpSite& site, Deadline deadline) {
  Result<UniqueFd> fd = dial_host_relay(site, deadline);
  if (!fd.is_ok()) return fd.status();
  HandshakeOutcome refused{};
  if (Status s = shake_hands(fd.value().get(), site, kOwnChannel, deadline, refused); !s.is_ok()) return s;
  return fd;
}

class TcpStore final : public Store {
 public:
  enum class Way : uint8_t { kDirect, kRelay, kProcess };  // kProcess: one connection
  // relay: that of this host, if this process serves it.
  TcpStore(TcpSite site, UniqueFd fd, Way way, std::unique_ptr<HostRelay> relay)
      : site_(std::move(site)), fd_(std::move(fd)), way_(way), relay_(std::move(relay)) {}

  Status set(std::string_view key, std::string_view value, Deadline deadline) override {
    if (Status status = check_value(key, value); !status.is_ok()) return status;
    return ask({.op = Op::kSet, .key = std::string(key), .value = std::string(value)}, deadline).status();
  }

  Result<std::string> get(std::string_view key, Deadline deadline) override {
    return ask_text({.op = Op::kGet, .key = std::string(key), .value = "", .amount = left(deadline)},
                    deadline);
  }

  Result<std::string> try_get(std::string_view key, Deadline deadline) override {
    return ask_text({.op = Op::kTryGet, .key = std::string(key), .value = ""}, deadline);
  }

  Result<int64_t> add(std::string_view key, int64_t amount, Deadline deadline) override {
    if (Status status = check_key(key); !status.is_ok()) return status;
    const Result<Reply> reply =
        ask({.op = Op::kAdd, .key = std::string(key), .value = "", .amount = amount}, deadline);
    if (!reply.is_ok()) return reply.status();
    return reply.value().sum;
  }

  Result<std::string> compare_and_set(std::string_view key, std::string_view expected, std::string_view value,
                                      Deadline deadline) override {
    if (Status status = check_both(key, expected, value); !status.is_ok()) return status;
    return ask_text({.op = Op::kCompareAndSet,
                     .key = std::string(key),
                     .value = std::string(value),
                     .expected = std::string(expected)},
                    deadline);
  }

  Result<std::string> get_shared(std::string_view key, Nanos age, Deadline deadline) override {
    const Nanos wait = std::max<Nanos>(left(deadline), 1);  // 0 would be a look
    return ask_text({.op = Op::kShare, .key = std::string(key), .value = "", .amount = wait, .limit = age},
                    deadline);
  }

  Result<std::string> try_get_shared(std::string_view key, Nanos age, Deadline deadline) override {
    return ask_text({.op = Op::kShare, .key = std::string(key), .value = "", .limit = age}, deadline);
  }

  Status give(const TableEntry& entry, Deadline deadline) override {
    return add_entry(Op::kGive, entry, deadline);
  }

  Status announce(const TableEntry& entry, Deadline deadline) override {
    return add_entry(Op::kAnnounce, entry, deadline);
  }

  Status remove_prefix(std::string_view prefix, Deadline deadline) override {
    if (prefix.size() > kMaxStoreKeyBytes) return check_key(prefix);
    return ask({.op = Op::kRemovePrefix, .key = std::string(prefix), .value = ""}, deadline).status();
  }

  void disconnect() override {
    is_resting_ = is_resting_ || (way_ == Way::kRelay && fd_.is_open());
    fd_.reset();
  }

  [[nodiscard]] std::string description() const override {
    return "tcp://" + host_and_port(site_.host, site_.port);
  }

 private:
  static Nanos left(Deadline deadline) { return std::max<Nanos>(deadline.when() - monotonic_now(), 0); }

  Result<std::string> ask_text(const Command& command, Deadline deadline) {
    if (Status status = check_key(command.key); !status.is_ok()) return status;
    Result<Reply> reply = ask(command, deadline);
    if (!reply.is_ok()) return reply.status();
    return std::move(reply.value().text);
  }

  Status add_entry(Op op, const TableEntry& entry, Deadline deadline) {
    const std::string key = entries_key(entry.table, entry.rank);
    const Entries mine = {{entry.rank, std::string(entry.value)}};
    if (Status status = check_value(key, encode_entries(mine)); !status.is_ok()) return status;
    join_relay_again(deadline);
    if (way_ == Way::kRelay && !is_broken()) {
      const Command command{.op = op,
                            .key = std::string(entry.table),
                            .value = std::string(entry.value),
                            .amount = entry.rank,
                            .limit = entry.host_size};
      const Result<Reply> reply = exchange(encode(command), earlier(deadline, Deadline::after(kRelayWrites)));
      if (reply.is_ok()) return {reply.value().code, reply.value().text};
      fd_.reset();
    }
    return write_entry(key, mine, deadline);
  }

  // Where this rank is in a batch that a relay has written, that stays.
  Status write_entry(const std::string& key, const Entries& mine, Deadline deadline) {
    std::string there, wanted = encode_entries(mine);
    for (int tries = 0; tries < kMostWrites; ++tries) {
      Result<std::string> now = compare_and_set(key, there, wanted, deadline);
      if (!now.is_ok()) return now.status();
      if (now.value() == wanted) return Status::ok();
      there = std::move(now).value();
      const Result<BatchMerge> merge = merge_batch(there, mine.begin()->first, mine);
      if (!merge.is_ok()) return merge.status();
      if (!merge.value().is_different) return Status::ok();
      wanted = encode_entries(merge.value().there);
    }
    return {Code::kUnavailable,
            "other processes keep writing key '" + key + "' of the store at " + description()};
  }

  static bool is_wait(const Command& command) {
    return command.op == Op::kGet || (command.op == Op::kShare && command.amount > 0);
  }

  // A connection that broke between commands is opened again once. If it broke during a command, it is opened
  // again only if repeating the command does no harm, which excludes add. So add does not go through a relay,
  // which ends with its process while the store is still there.
  Result<Reply> ask(const Command& command, Deadline deadline) {
    const Bytes message = encode(command);
    join_relay_again(deadline);
    if (command.op == Op::kAdd && way_ == Way::kRelay) fd_.reset();
    Status last;
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (is_broken()) {
        if (way_ == Way::kProcess) return lost(command, {Code::kPeerLost, "it has ended"});
        Result<UniqueFd> fd = dial_again(deadline);
        if (!fd.is_ok()) return lost(command, fd.status());
        fd_ = std::move(fd).value();
        way_ = Way::kDirect;
      }
      const Nanos grace = is_wait(command) ? kGrace : 0;
      Result<Reply> reply = exchange(message, Deadline::at(deadline.when() + grace));
      if (reply.is_ok()) return answered(command, std::move(reply).value());
      fd_.reset();  // a late reply must not be mistaken for the reply to the next command
      last = reply.status();
      if (last.code != Code::kPeerLost || command.op == Op::kAdd) break;
    }
    return lost(command, last);
  }

  // After disconnect(). Where that fails, this process dials the store itself, as when the relay is lost.
  void join_relay_again(Deadline deadline) {
    if (!std::exchange(is_resting_, false)) return;
    Result<UniqueFd> fd = dial_relay(site_, earlier(deadline, Deadline::after(kRelayAnswers)));
    if (fd.is_ok()) fd_ = std::move(fd).value();
  }

  // Until the deadline, since a store that a thousand ranks ask at once may take longer than one attempt.
  Result<UniqueFd> dial_again(Deadline deadline) {
    while (true) {
      HandshakeOutcome refused{};
      Result<UniqueFd> fd = dial_once(site_, kOwnChannel, deadline, refused);
      if (fd.is_ok() || fd.status().code != Code::kTimeout || deadline.is_past()) return fd;
    }
  }

  [[nodiscard]] Status lost(const Command& command, const Status& why) const {
    if (why.code == Code::kTimeout && is_wait(command)) return key_timeout(command.key, description());
    if (why.code == Code::kTimeout)
      return {Code::kTimeout, "the store at " + description() + " did not answer about key '" + command.key +
                                  "' in time: " + why.why};
    return {why.code == Code::kPermissionDenied ? why.code : Code::kPeerLost,
            "the connection to the store at " + description() + " broke during a command for key '" +
                command.key + "': " + why.why + "; the process that serves it may have ended"};
  }

  Result<Reply> answered(const Command& command, Reply reply) const {
    if (reply.code == Code::kOk) return reply;
    const bool is_look = command.op == Op::kTryGet || (command.op == Op::kShare && !is_wait(command));
    if (reply.code == Code::kUnavailable && is_look) return key_absent(command.key, description());
    if (reply.code == Code::kTimeout && is_wait(command)) return key_timeout(command.key, description());
    return Status(reply.code, std::move(reply.text));
  }

  // Nothing may arrive between commands, so a readable connection has ended.
  [[nodiscard]] bool is_broken() const {
    if (!fd_.is_open()) return true;
    std::byte byte{};
    const ssize_t got = recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

  Result<Reply> exchange(const Bytes& message, Deadline deadline) {
    if (Status status = send_all(fd_.get(), message, deadline); !status.is_ok()) return status;
    Bytes in;
    std::array<std::byte, 16'384> buffer{};
    while (true) {
      const Result<size_t> whole = message_bytes(in);
      if (!whole.is_ok()) return whole.status();
      if (whole.value() != 0 && in.size() >= whole.value()) {
        if (in.size() > whole.value()) return malformed_message();
        return decode_reply(std::span<const std::byte>(in).subspan(kLengthBytes));
      }
      const Result<size_t> got = receive_some(fd_.get(), buffer, deadline);
      if (!got.is_ok()) return got.status();
      in.insert(in.end(), buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(got.value()));
    }
  }

  TcpSite site_;
  UniqueFd fd_;
  Way way_;
  std::unique_ptr<HostRelay> relay_;
  bool is_resting_ = false;  // disconnect() has closed a connection to the relay
};

Result<std::unique_ptr<Store>> client_of(const TcpSite& site, Result<UniqueFd> dialled, TcpStore::Way way,
                                         std::unique_ptr<HostRelay> relay = nullptr) {
  if (!dialled.is_ok()) return dialled.status();
  return std::unique_ptr<Store>(
      std::make_unique<TcpStore>(site, std::move(dialled).value(), way, std::move(relay)));
}

// A client of the relay of this host. kUnavailable: nobody relays.
Result<std::unique_ptr<Store>> join_relay(const TcpSite& site, std::unique_ptr<HostRelay> relay,
                                          Deadline deadline) {
  return client_of(site, dial_relay(site, deadline), TcpStore::Way::kRelay, std::move(relay));
}

}  // namespace

Result<std::unique_ptr<Store>> dial_tcp_store_once(const TcpSite& site, Deadline deadline,
                                                   HandshakeOutcome& refused) {
  return client_of(site, dial_once(site, kOwnChannel, deadline, refused), TcpStore::Way::kDirect);
}

Result<std::unique_ptr<Store>> dial_process_once(const TcpSite& site, Deadline deadline,
                                                 HandshakeOutcome& refused) {
  return client_of(site, dial_once(site, kOwnChannel, deadline, refused), TcpStore::Way::kProcess);
}

Result<std::unique_ptr<Store>> dial_store_of_host(const TcpSite& site, Deadline deadline,
                                                  HandshakeOutcome& refused) {
  const Deadline soon = earlier(deadline, Deadline::after(kRelayAnswers));
  std::unique_ptr<HostRelay> mine;  // null: another process relays
  if (Result<UniqueFd> listener = bind_host_relay(site); listener.is_ok()) {
    Result<UniqueFd> upstream = dial_once(site, kRelayChannel, deadline, refused);
    if (!upstream.is_ok()) return upstream.status();
    Result<std::unique_ptr<HostRelay>> relay =
        serve_host_relay(site, std::move(listener).value(), std::move(upstream).value());
    if (!relay.is_ok()) return dial_tcp_store_once(site, deadline, refused);
    mine = std::move(relay).value();
  }
  Result<std::unique_ptr<Store>> joined = join_relay(site, std::move(mine), soon);
  return joined.is_ok() ? std::move(joined) : dial_tcp_store_once(site, deadline, refused);
}

Result<std::unique_ptr<Store>> open_tcp_store(const std::string& host, int port, const std::string& job,
                                              const Secret& secret, const std::string& release,
                                              Deadline deadline) {
  return open_tcp_store({.host = host, .port = port, .job = job, .secret = secret, .release = release},
                        deadline);
}

Result<std::unique_ptr<Store>> open_tcp_store(const TcpSite& site, Deadline deadline) {
  Nanos pause = kFirstPause;
  while (true) {
    HandshakeOutcome refused{};
    Result<std::unique_ptr<Store>> store = dial_tcp_store_once(site, deadline, refused);
    if (store.is_ok() || store.status().code == Code::kPermissionDenied) return store;
    const Nanos left = deadline.when() - monotonic_now();
    if (left <= 0)
      return Status(Code::kTimeout, store.status().why +
                                        "; is rank 0 (or the launcher) running there, and does a firewall "
                                        "let this port through?");
    sleep_for(std::min(pause, left));
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace rueda::store
