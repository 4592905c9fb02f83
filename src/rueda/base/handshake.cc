#include "rueda/base/handshake.h"

#include <sys/random.h>

#include <algorithm>
#include <string_view>

#include "rueda/base/limits.h"

namespace rueda {
namespace {

constexpr uint32_t kMagic = 0x31445552;  // "RUD1" on the wire
constexpr size_t kHeaderBytes = 7;       // magic, kind, body size
constexpr size_t kMaxTextBytes = 64;     // job, release
constexpr size_t kNonceBytes = 32;
constexpr size_t kMacBytes = 32;

using Nonce = std::array<std::byte, kNonceBytes>;
using Mac = std::array<std::byte, kMacBytes>;

enum class Kind : uint8_t { kHello = 1, kAnswer = 2, kProof = 3, kWelcome = 4 };

constexpr std::string_view kServerLabel = "rueda handshake 1 server";
constexpr std::string_view kClientLabel = "rueda handshake 1 client";

Status denied(std::string why) { return {Code::kPermissionDenied, std::move(why)}; }
Status malformed(std::string_view what) {
  return denied("the peer does not use rueda's protocol: " + std::string(what) + ".");
}

Nonce make_nonce() {
  Nonce nonce{};
  // Once the kernel's pool is ready, requests of up to 256 bytes are never cut short.
  const ssize_t got = getrandom(nonce.data(), nonce.size(), 0);
  RUEDA_CHECK(got == static_cast<ssize_t>(nonce.size()), "getrandom gave too few bytes");
  return nonce;
}

Bytes message_of(Kind kind, const Bytes& body) {
  RUEDA_CHECK(kHeaderBytes + body.size() <= kMaxHandshakeBytes, "a handshake message is too long");
  ByteWriter writer;
  writer.put(kMagic);
  writer.put(kind);
  writer.put(static_cast<uint16_t>(body.size()));
  writer.put_raw(body);
  return std::move(writer).take();
}

// The label comes first, and both messages contain their own sizes, so two different inputs cannot give
// the same bytes.
Mac prove(const Secret& secret, std::string_view label, const Bytes& first, const Bytes& second) {
  ByteWriter writer;
  writer.put_string(label);
  writer.put_string({reinterpret_cast<const char*>(first.data()), first.size()});
  writer.put_string({reinterpret_cast<const char*>(second.data()), second.size()});
  return hmac_sha256(secret.key, writer.bytes());
}

// Text from a stranger appears in error messages, so it is made printable.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text;
}

std::string_view name_of(ConnectionKind kind) {
  switch (kind) {
    case ConnectionKind::kStore:
      return "store";
    case ConnectionKind::kControl:
      return "control";
    case ConnectionKind::kData:
      return "data";
    case ConnectionKind::kShm:
      return "shared memory";
    case ConnectionKind::kAgent:
      return "agent";
    case ConnectionKind::kUcx:
      return "UCX";
  }
  return "unknown";
}

constexpr std::string_view kOneInstallation =
    "; use one installation of rueda for the launcher and all ranks of the job.";

// The wire version and the release come first in every version of the protocol, so that any two releases can
// name each other.
Bytes encode_hello(const ConnectionIdentity& mine, const std::string& version) {
  ByteWriter body;
  body.put(kWireVersion);
  body.put_string(version);
  body.put_string(mine.job);
  body.put(mine.epoch);
  body.put(mine.kind);
  body.put(mine.channel);
  body.put(mine.from);
  body.put(mine.to);
  body.put(mine.protocol);
  body.put_raw(make_nonce());
  return message_of(Kind::kHello, body.bytes());
}

Status wrong_secret(const std::string& job) {
  return denied("the peer does not know the secret of job '" + job +
                "'; all processes of a job must be started with the same secret.");
}

// The error on the client when the server has refused it.
Status refusal(HandshakeOutcome outcome, const ConnectionIdentity& asked) {
  switch (outcome) {
    case HandshakeOutcome::kWrongJob:
      return denied("the peer refused the connection: it belongs to another job than '" + asked.job + "'.");
    case HandshakeOutcome::kWrongEpoch:
      return denied("the peer refused the connection: it is not in epoch " + std::to_string(asked.epoch) +
                    " of job '" + asked.job + "'.");
    case HandshakeOutcome::kWrongConnectionKind:
      return denied("the peer refused the connection: it does not accept " +
                    std::string(name_of(asked.kind)) + " connections here.");
    case HandshakeOutcome::kWrongRank:
      return denied("the peer refused the connection: it is not rank " + std::to_string(asked.to) +
                    ", or rank " + std::to_string(asked.from) + " is impossible.");
    case HandshakeOutcome::kWrongSecret:
      return wrong_secret(asked.job);
    case HandshakeOutcome::kWrongProtocol:
      return denied("the peer is another build of rueda" + std::string(kOneInstallation));
    default:
      return denied("the peer refused the connection for a reason that this release does not know.");
  }
}

bool is_rank(Rank rank) { return rank >= -1 && rank < kMaxRanks; }

std::pair<HandshakeOutcome, Status> judge(const ConnectionIdentity& asked,
                                          const ConnectionIdentity& accepted) {
  if (asked.job != accepted.job)
    return {HandshakeOutcome::kWrongJob, denied("a peer of job '" + printable(asked.job) +
                                                "' called; this is job '" + accepted.job + "'.")};
  if (asked.epoch != accepted.epoch)
    return {HandshakeOutcome::kWrongEpoch,
            denied("a peer of epoch " + std::to_string(asked.epoch) + " called; this is epoch " +
                   std::to_string(accepted.epoch) + " of job '" + accepted.job + "'.")};
  if (asked.kind != accepted.kind)
    return {
        HandshakeOutcome::kWrongConnectionKind,
        denied("a peer asked for a " + std::string(name_of(asked.kind)) + " connection; this side accepts " +
               std::string(name_of(accepted.kind)) + " connections.")};
  if (!is_rank(asked.from) || !is_rank(asked.to))
    return {HandshakeOutcome::kWrongRank,
            denied("a peer named an impossible rank: from " + std::to_string(asked.from) + " to " +
                   std::to_string(asked.to) + ".")};
  // -1 on either side matches any rank.
  if (asked.to != accepted.to && asked.to != -1 && accepted.to != -1)
    return {HandshakeOutcome::kWrongRank,
            denied("rank " + std::to_string(asked.from) + " asked for rank " + std::to_string(asked.to) +
                   "; this is rank " + std::to_string(accepted.to) + ".")};
  return {HandshakeOutcome::kAccepted, Status::ok()};
}

}  // namespace

Handshake::Handshake(const Secret& secret, ConnectionIdentity identity, std::string version,
                     HandshakeState start)
    : secret_(secret), identity_(std::move(identity)), version_(std::move(version)), state_(start) {
  RUEDA_CHECK(secret_.key.size() >= 16, "a secret has at least 16 bytes");
  RUEDA_CHECK(identity_.job.size() <= kMaxTextBytes, "a job identifier has at most 64 bytes");
  RUEDA_CHECK(version_.size() <= kMaxTextBytes, "a release text has at most 64 bytes");
}

Handshake Handshake::client(const Secret& secret, ConnectionIdentity mine, std::string version) {
  Handshake self(secret, std::move(mine), std::move(version), HandshakeState::kAwaitAnswer);
  self.hello_ = encode_hello(self.identity_, self.version_);
  self.output_ = self.hello_;
  return self;
}

Handshake Handshake::server(const Secret& secret, ConnectionIdentity accepted, std::string version) {
  return {secret, std::move(accepted), std::move(version), HandshakeState::kAwaitHello};
}

Bytes Handshake::take_output() { return std::exchange(output_, {}); }

Result<size_t> Handshake::feed(std::span<const std::byte> arrived) {
  size_t taken = 0;
  while (state_ != HandshakeState::kDone) {
    if (state_ == HandshakeState::kFailed) return failure_;
    Result<size_t> need = missing();
    Status status = need.is_ok() ? Status::ok() : need.status();
    if (status.is_ok() && need.value() > 0) {
      const auto bytes = arrived.subspan(taken, std::min(need.value(), arrived.size() - taken));
      if (bytes.empty()) break;
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
      taken += bytes.size();
      continue;
    }
    if (status.is_ok()) status = step();
    if (!status.is_ok()) {
      state_ = HandshakeState::kFailed;
      failure_ = std::move(status);
    }
  }
  return taken;
}

Result<size_t> Handshake::missing() const {
  ByteWriter magic;
  magic.put(kMagic);
  const size_t seen = std::min(buffer_.size(), sizeof(kMagic));
  if (!std::equal(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(seen), magic.bytes().begin()))
    return malformed("its first bytes are not those of rueda");
  if (buffer_.size() < kHeaderBytes) return kHeaderBytes - buffer_.size();
  const std::span<const std::byte> seen_bytes(buffer_);
  ByteReader header(seen_bytes.subspan(sizeof(kMagic), kHeaderBytes - sizeof(kMagic)));
  const auto kind = header.get<uint8_t>();
  const size_t whole = kHeaderBytes + header.get<uint16_t>();
  // A waiting state has the number of the message kind that it waits for.
  if (kind != static_cast<uint8_t>(state_) + 1) return malformed("a message came in the wrong order");
  if (whole > kMaxHandshakeBytes) return malformed("a message is too long");
  return whole - buffer_.size();
}

Status Handshake::step() {
  const Bytes message = std::exchange(buffer_, {});
  switch (state_) {
    case HandshakeState::kAwaitHello:
      return on_hello(message);
    case HandshakeState::kAwaitAnswer:
      return on_answer(message);
    case HandshakeState::kAwaitProof:
      return on_proof(message);
    case HandshakeState::kAwaitWelcome:
      return on_welcome(message);
    default:
      RUEDA_CHECK(false, "a finished handshake was fed");
  }
}

Status Handshake::version_fault() const {
  return denied("this side runs rueda " + version_ + " (wire " + std::to_string(kWireVersion) +
                "), the peer " + peer_.release + " (wire " + std::to_string(peer_.wire) + ")" +
                std::string(kOneInstallation));
}

Status Handshake::protocol_fault() const {
  return denied("this side and the peer are different builds of rueda " + version_ + ": this side speaks " +
                std::string(name_of(identity_.kind)) + " protocol " + std::to_string(identity_.protocol) +
                ", the peer " + std::to_string(peer_.protocol) + std::string(kOneInstallation));
}

Status Handshake::refuse(HandshakeOutcome outcome, Status why) {
  outcome_ = outcome;
  ByteWriter body;
  body.put(kWireVersion);
  body.put_string(version_);
  body.put(outcome);
  output_ = message_of(Kind::kAnswer, body.bytes());
  return why;
}

Status Handshake::on_hello(std::span<const std::byte> message) {
  ByteReader body(message.subspan(kHeaderBytes));
  peer_.wire = body.get<uint16_t>();
  peer_.release = printable(body.get_string(kMaxTextBytes));
  if (!body.is_ok()) return malformed("its greeting is too short");
  if (!is_same_version()) return refuse(HandshakeOutcome::kWrongVersion, version_fault());
  ConnectionIdentity asked;
  asked.job = body.get_string(kMaxTextBytes);
  asked.epoch = body.get<Epoch>();
  asked.kind = body.get<ConnectionKind>();
  asked.channel = body.get<uint16_t>();
  asked.from = body.get<Rank>();
  asked.to = body.get<Rank>();
  peer_.protocol = body.get<uint16_t>();
  body.get_raw(kNonceBytes);
  if (!body.is_ok() || !body.is_at_end()) return malformed("its greeting has a wrong size");
  auto [outcome, why] = judge(asked, identity_);
  if (outcome != HandshakeOutcome::kAccepted) return refuse(outcome, std::move(why));

  identity_.from = asked.from;
  identity_.channel = asked.channel;
  hello_.assign(message.begin(), message.end());
  ByteWriter answer;
  answer.put(kWireVersion);
  answer.put_string(version_);
  answer.put(HandshakeOutcome::kAccepted);
  answer.put(identity_.to);  // binds the rank of the server even if the client asked for any rank
  answer.put(identity_.protocol);
  answer.put_raw(make_nonce());
  answer.put_raw(prove(secret_, kServerLabel, hello_, answer.bytes()));
  answer_ = message_of(Kind::kAnswer, answer.bytes());
  output_ = answer_;
  state_ = HandshakeState::kAwaitProof;
  return Status::ok();
}

Status Handshake::on_answer(std::span<const std::byte> message) {
  const std::span<const std::byte> whole = message.subspan(kHeaderBytes);
  ByteReader body(whole);
  peer_.wire = body.get<uint16_t>();
  peer_.release = printable(body.get_string(kMaxTextBytes));
  const auto outcome = body.get<HandshakeOutcome>();
  if (!body.is_ok()) return malformed("its answer is too short");
  if (outcome == HandshakeOutcome::kWrongProtocol) return malformed("it refuses a protocol without a proof");
  outcome_ = is_same_version() ? outcome : HandshakeOutcome::kWrongVersion;
  if (outcome_ == HandshakeOutcome::kWrongVersion) return version_fault();
  if (outcome != HandshakeOutcome::kAccepted) return refusal(outcome, identity_);
  const auto server = body.get<Rank>();
  peer_.protocol = body.get<uint16_t>();
  body.get_raw(kNonceBytes);
  const std::span<const std::byte> mac = body.get_raw(kMacBytes);
  if (!body.is_ok() || !body.is_at_end()) return malformed("its answer has a wrong size");

  const auto proven = whole.first(whole.size() - kMacBytes);
  ByteWriter proof;
  if (!is_same_secret(mac, prove(secret_, kServerLabel, hello_, Bytes(proven.begin(), proven.end())))) {
    outcome_ = HandshakeOutcome::kWrongSecret;
    proof.put(outcome_);
    proof.put_raw(Mac{});
    output_ = message_of(Kind::kProof, proof.bytes());
    return wrong_secret(identity_.job);
  }
  if (identity_.to != -1 && server != -1 && server != identity_.to)
    return denied("rank " + std::to_string(server) + " answered where rank " + std::to_string(identity_.to) +
                  " was called.");
  answer_.assign(message.begin(), message.end());
  // Both have proved themselves before either refuses the other's protocol, so that a stranger can neither
  // make a process believe in another build nor end an init with one.
  if (peer_.protocol != identity_.protocol) outcome_ = HandshakeOutcome::kWrongProtocol;
  proof.put(outcome_);
  proof.put_raw(prove(secret_, kClientLabel, hello_, answer_));
  output_ = message_of(Kind::kProof, proof.bytes());
  if (outcome_ != HandshakeOutcome::kAccepted) return protocol_fault();
  state_ = HandshakeState::kAwaitWelcome;
  return Status::ok();
}

Status Handshake::on_proof(std::span<const std::byte> message) {
  ByteReader body(message.subspan(kHeaderBytes));
  const auto outcome = body.get<HandshakeOutcome>();
  const std::span<const std::byte> mac = body.get_raw(kMacBytes);
  if (!body.is_ok() || !body.is_at_end()) return malformed("its proof has a wrong size");
  const bool is_proven = is_same_secret(mac, prove(secret_, kClientLabel, hello_, answer_));
  const bool is_same_protocol = peer_.protocol == identity_.protocol;
  outcome_ = !is_proven          ? HandshakeOutcome::kWrongSecret
             : !is_same_protocol ? HandshakeOutcome::kWrongProtocol
                                 : outcome;
  ByteWriter welcome;
  welcome.put(outcome_);
  output_ = message_of(Kind::kWelcome, welcome.bytes());
  if (is_proven && !is_same_protocol) return protocol_fault();
  if (outcome_ != HandshakeOutcome::kAccepted) return wrong_secret(identity_.job);
  state_ = HandshakeState::kDone;
  return Status::ok();
}

Status Handshake::on_welcome(std::span<const std::byte> message) {
  ByteReader body(message.subspan(kHeaderBytes));
  const auto outcome = body.get<HandshakeOutcome>();
  if (!body.is_ok() || !body.is_at_end()) return malformed("its welcome has a wrong size");
  outcome_ = outcome;
  if (outcome != HandshakeOutcome::kAccepted) return refusal(outcome, identity_);
  state_ = HandshakeState::kDone;
  return Status::ok();
}

}  // namespace rueda
