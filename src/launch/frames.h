// What launcher and agent say to one another over the agent's stdin and stdout. Binary, since arguments and
// variables need not be UTF-8: a little-endian u32 length of what follows, one byte type, payload. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/environment.h"
#include "launch/output.h"
#include "rueda/base/bytes.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"

namespace rueda::launch {

enum class FrameType : uint8_t {
  // launcher -> agent
  kJob = 1,     // Job: start the ranks; once
  kSignal = 2,  // i32 signal: pass it to the ranks
  kStop = 3,    // i64 grace in ms: SIGTERM now, SIGKILL after the grace
  kKill = 4,    // SIGKILL now
  kPing = 5,
  kHold = 6,  // u8: the launcher is about to be stopped (1) or goes on (0); pings pause
  // agent -> launcher
  kHello = 16,    // Hello
  kStarted = 17,  // i32 rank, i32 pid
  kOutput = 18,   // i32 rank, u8 stream, bytes
  kExit = 19,     // Exit
  kFile = 20,     // i32 rank, bytes: the next part of the rank's result file
  kBye = 21,      // everything on this host has ended and was reported
  kPong = 22,     // i64 agent's monotonic clock; every second, for liveness and clock alignment
};

inline constexpr size_t kMaxOutputBytes = 64 << 10;  // payload of one kOutput or kFile frame
inline constexpr int kProtocol = 1;
// Before the first frame; what a login script prints ahead of it is skipped.
inline constexpr std::string_view kAgentMagic = "\n\x01rueda-agent-1\x01\n";

struct Hello {
  int32_t protocol = kProtocol;
  std::string release;
  std::string host;  // gethostname
  int32_t pid = 0;
  std::string private_dir{};   // removed by agents; by the launcher if it outlives both halves of a local one
  int32_t free_port = 0;       // that was free a moment ago, for MASTER_PORT
  std::string ssh_connection;  // SSH_CONNECTION: "client port server port"; "" = started without ssh
};

struct RankJob {
  int32_t rank = 0;
  Variables env;
};

struct Job {
  std::vector<std::string> argv;
  std::string cwd;
  Variables env{};  // over the agent's own
  std::vector<RankJob> ranks{};
  std::string secret;  // hex; the agent puts it into a private file
  std::string stage;   // file given to all ranks in their private directory, "" = none
  int32_t ping_timeout_ms =
      0;                     // silence of the launcher after which the ranks are ended; 0 = only end of file
  bool binds_cores = false;  // each rank keeps to its own share of the host's cores
};

struct Exit {
  int32_t rank = 0;
  int32_t pid = 0;
  int32_t exit_code = 0;
  int32_t signal = 0;
  int64_t at = 0;  // agent's monotonic clock
  uint8_t was_stopped = 0;
  int8_t was_out_of_memory = -1;  // -1 = unreadable
  std::string trouble{};          // why it could not be started
};

struct Frame {
  FrameType type{};
  Bytes payload;
};

// With the length in front, ready to be written.
Bytes encode_frame(FrameType type, std::span<const std::byte> payload);
Bytes encode(const Hello& hello);
Bytes encode(const Job& job);
Bytes encode(const Exit& exit);
Result<Hello> decode_hello(std::span<const std::byte> payload);
Result<Job> decode_job(std::span<const std::byte> payload);
Result<Exit> decode_exit(std::span<const std::byte> payload);

// Cuts a stream into frames. A frame longer than kMaxFrameBytes is refused before it is buffered.
class FrameReader {
 public:
  // With a magic, everything up to and including it is skipped first, at most 64 KiB.
  explicit FrameReader(std::string_view magic = {}) : magic_(magic) {}
  void feed(std::span<const std::byte> bytes);
  // Nothing when more bytes are needed.
  Result<std::optional<Frame>> next();
  [[nodiscard]] std::string_view skipped() const { return skipped_; }  // what came before the magic

 private:
  Status skip_to_magic();
  std::string magic_;
  std::string skipped_;
  Bytes buffer_;
  size_t read_ = 0;  // bytes of buffer_ already consumed
};

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace rueda::launch
