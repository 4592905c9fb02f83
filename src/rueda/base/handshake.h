// Mutual challenge-response without I/O: it takes bytes and returns bytes. Every connection of a job
// starts with it. Both sides prove that they know the secret of the job without sending it. The proofs are
// bound to job, epoch, connection kind, both ranks and the direction, so they cannot be replayed
// elsewhere. See also docs/wire.md.
//
//   client -> server: hello   {wire version, release, job, epoch, connection kind, channel, from, to,
//                              protocol, nonce}
//   server -> client: answer  {wire version, release, outcome, rank, protocol, nonce,
//                              HMAC(secret, "server" | hello | answer so far)}
//   client -> server: proof   {outcome, HMAC(secret, "client" | hello | answer)}
//   server -> client: welcome {outcome}
//
// Each message is {magic u32, kind u8, body bytes u16} and a body. A outcome other than "accepted" ends the
// exchange. Each side turns it into a sentence from what it knows itself.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda {

// Of the handshake itself. What is said after it has numbers of its own (ConnectionIdentity::protocol).
inline constexpr uint16_t kWireVersion = 2;
inline constexpr size_t kMaxHandshakeBytes = 512;  // of one handshake message; a longer one is hostile

struct Secret {
  Bytes key;  // at least 16 bytes
};
Result<Secret> make_secret();                              // 32 random bytes
Result<Secret> read_secret_file(const std::string& path);  // hex or raw; refuses files that others may read
Status write_secret_file(const std::string& path,
                         const Secret& secret);  // mode 0600; never leaves half a file
std::array<std::byte, 32> hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);
// Takes the same time wherever they differ.
bool is_same_secret(std::span<const std::byte> a, std::span<const std::byte> b);

// The purpose of a connection. Both sides must name the same one.
enum class ConnectionKind : uint8_t { kStore = 1, kControl = 2, kData = 3, kShm = 4, kAgent = 5, kUcx = 6 };

// Why a peer was refused. Part of the wire format: append only.
enum class HandshakeOutcome : uint8_t {
  kAccepted = 0,
  kWrongVersion = 1,
  kWrongJob = 2,
  kWrongEpoch = 3,
  kWrongConnectionKind = 4,
  kWrongRank = 5,
  kWrongSecret = 6,
  kWrongProtocol = 7,  // said only to a peer that has proved itself
};

struct ConnectionIdentity {
  std::string job;  // public identifier of the job, ≤ 64 bytes
  Epoch epoch = 0;
  ConnectionKind kind = ConnectionKind::kData;
  uint16_t channel = 0;
  Rank from = -1;  // world rank of the client, -1 = none yet
  Rank to = -1;    // world rank of the server, -1 = any
  // The number of what both sides say to each other after the handshake; 0: the release is enough.
  uint16_t protocol = 0;
};

// What one side of a connection speaks.
struct SpokenVersion {
  uint16_t wire = kWireVersion;
  std::string release;
  uint16_t protocol = 0;  // known only if both have the same wire version and release
};

// Runs one side of the handshake. Feed the bytes that arrived, take the bytes to send, and repeat until
// is_done or a failure.
class Handshake {
 public:
  // The client states what it wants. The server states what it accepts: job, epoch, connection kind,
  // protocol, and its own rank in `to`. It learns `from` and `channel` from the client (see identity()).
  // version is the release, which must be equal on both sides.
  static Handshake client(const Secret& secret, ConnectionIdentity mine, std::string version);
  static Handshake server(const Secret& secret, ConnectionIdentity accepted, std::string version);

  // Consumes the first bytes of `arrived` and returns how many. The rest belongs to the stream
  // after the handshake. A failure is final: send what take_output still returns (a outcome), then
  // close the connection.
  Result<size_t> feed(std::span<const std::byte> arrived);
  Bytes take_output();
  [[nodiscard]] bool is_done() const { return state_ == HandshakeState::kDone; }
  [[nodiscard]] const ConnectionIdentity& identity() const { return identity_; }
  // After a failure: what the client was refused for, or what the server has refused the client for.
  // kAccepted if the peer is no rueda. kWrongProtocol: the peer has proved that it knows the secret.
  [[nodiscard]] HandshakeOutcome outcome() const { return outcome_; }
  // What the peer has said that it speaks.
  [[nodiscard]] const SpokenVersion& peer() const { return peer_; }
  [[nodiscard]] SpokenVersion mine() const {
    return {.wire = kWireVersion, .release = version_, .protocol = identity_.protocol};
  }

 private:
  enum class HandshakeState : uint8_t {
    kAwaitHello,
    kAwaitAnswer,
    kAwaitProof,
    kAwaitWelcome,
    kDone,
    kFailed
  };
  Handshake(const Secret& secret, ConnectionIdentity identity, std::string version, HandshakeState start);
  // How many bytes buffer_ lacks for one whole message. Fails at the first impossible byte.
  Result<size_t> missing() const;
  Status step();  // consumes the message in buffer_, which is complete
  Status on_hello(std::span<const std::byte> message);
  Status on_answer(std::span<const std::byte> message);
  Status on_proof(std::span<const std::byte> message);
  Status on_welcome(std::span<const std::byte> message);
  Status refuse(HandshakeOutcome outcome, Status why);  // for the server: also tells the peer
  [[nodiscard]] Status version_fault() const;
  [[nodiscard]] Status protocol_fault() const;
  [[nodiscard]] bool is_same_version() const {
    return peer_.wire == kWireVersion && peer_.release == version_;
  }

  Secret secret_;
  ConnectionIdentity identity_;
  std::string version_;
  HandshakeState state_;
  HandshakeOutcome outcome_ = HandshakeOutcome::kAccepted;
  SpokenVersion peer_;
  Status failure_;
  Bytes buffer_, output_, hello_, answer_;
};

}  // namespace rueda
