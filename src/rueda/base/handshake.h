// Mutual challenge-response, sans I/O: bytes in, bytes out. Every connection of a job starts with it,
// whatever carries the bytes. Both sides prove that they know the job's secret without showing it; the proofs
// are bound to job, epoch, channel, both ranks and the direction, so none can be replayed elsewhere. See
// docs/wire.md.
//
//   client -> server: hello   {wire version, release, job, epoch, channel, lane, from, to, nonce}
//   server -> client: answer  {wire version, release, verdict, nonce,
//                              HMAC(secret, "server" | hello | answer so far)}
//   client -> server: proof   {verdict, HMAC(secret, "client" | hello | answer)}
//   server -> client: welcome {verdict}
//
// Each message is {magic u32, kind u8, body bytes u16} and a body. A verdict other than "accepted" ends the
// exchange and is turned into a sentence by each side from what it knows itself.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda {

inline constexpr uint16_t kWireVersion = 1;
inline constexpr size_t kMaxHandshakeBytes = 512;  // one handshake message; anything longer is hostile

struct Secret {
  Bytes key;  // at least 16 bytes
};
Result<Secret> make_secret();                              // 32 random bytes
Result<Secret> read_secret_file(const std::string& path);  // hex or raw; refuses files others may read
Status write_secret_file(const std::string& path, const Secret& secret);  // mode 0600, never half-written
std::array<std::byte, 32> hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

// What a connection is for; both sides must name the same.
enum class Channel : uint8_t { kStore = 1, kControl = 2, kData = 3, kShm = 4, kAgent = 5 };

struct Introduction {
  std::string job;  // public identifier of the job, ≤ 64 bytes
  Epoch epoch = 0;
  Channel channel = Channel::kData;
  uint16_t lane = 0;
  Rank from = -1;  // world rank of the client, -1 = none yet
  Rank to = -1;    // world rank of the server, -1 = any
};

// Drives one side. Feed whatever arrived; take what is to be sent; repeat until is_done or failed.
class Handshake {
 public:
  // The client knows what it wants. The server states what it accepts: job, epoch, channel and its own rank
  // in `to`; `from` and `lane` are learnt (see introduction()). version is the release text; it must be
  // equal.
  static Handshake client(const Secret& secret, Introduction mine, std::string version);
  static Handshake server(const Secret& secret, Introduction accepted, std::string version);

  // Consumes a prefix of `arrived` and returns how many bytes it took; the rest belongs to the stream after
  // the handshake. A failing Status is final: send what take_output still has (a verdict), then close.
  Result<size_t> feed(std::span<const std::byte> arrived);
  Bytes take_output();
  [[nodiscard]] bool is_done() const { return state_ == State::kDone; }
  [[nodiscard]] const Introduction& introduction() const { return introduction_; }

 private:
  enum class State : uint8_t { kAwaitHello, kAwaitAnswer, kAwaitProof, kAwaitWelcome, kDone, kFailed };
  Handshake(const Secret& secret, Introduction introduction, std::string version, State start);
  // Bytes until buffer_ holds one message; fails at the first impossible byte.
  Result<size_t> missing() const;
  Status step();  // consumes the one whole message in buffer_
  Status on_hello(std::span<const std::byte> message);
  Status on_answer(std::span<const std::byte> message);
  Status on_proof(std::span<const std::byte> message);
  Status on_welcome(std::span<const std::byte> message);
  Status refuse(uint8_t verdict, Status why);  // tells the peer, as the server

  Secret secret_;
  Introduction introduction_;
  std::string version_;
  State state_;
  Status failure_;
  Bytes buffer_, output_, hello_, answer_;
};

}  // namespace rueda
