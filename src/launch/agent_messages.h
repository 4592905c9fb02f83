// The messages between launcher and agent, over the agent's stdin and stdout. They are binary, because
// arguments and variables need not be UTF-8. A message is the length of the rest (u32, little-endian), one
// byte of type, and the payload. Pure.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/environment.h"
#include "launch/output.h"
#include "rueda/base/bytes.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/status/elastic_board.h"
#include "rueda/status/job_answer.h"

namespace rueda::launch {

enum class MessageType : uint8_t {
  // launcher -> agent
  kJob = 1,     // Job: start the ranks; once
  kSignal = 2,  // i32 signal: pass it to the ranks
  kStop = 3,    // i64 grace in ms: SIGTERM now, SIGKILL after the grace
  kKill = 4,    // SIGKILL now
  kPing = 5,
  kHold = 6,         // u8: the launcher is about to be suspended (1) and sends no pings, or goes on (0)
  kAsk = 7,          // Question: ask the ranks of this host
  kNews = 8,         // status::JobNews, every second in jobs of several hosts: for the ranks of this host
  kStartRank = 9,    // RankJob: another rank of an elastic job
  kEndRank = 10,     // i32 rank: SIGKILL to this one
  kViewChange = 11,  // ViewChangeFor: to the board of a process of an elastic job
  kRefused = 12,     // text: why this agent cannot join; it ends
  kBranch = 13,      // BranchOrder: start the agent of another host (branch_messages.h)
  kToBranch = 14,    // i32 branch, and a whole message for it
  kEndBranch = 15,   // i32 branch, i32 signal to ssh; 0: it gets end of file
  // agent -> launcher
  kHello = 16,    // Hello
  kStarted = 17,  // i32 rank, i32 pid
  kOutput = 18,   // i32 rank, u8 stream, bytes
  kExit = 19,     // Exit
  kFile = 20,     // i32 rank, bytes: the next part of the rank's result file
  kBye = 21,      // every process on this host has ended, and its end was reported
  kPong = 22,     // i64 agent's monotonic clock; sent every second, for liveness and to align the clocks
  kAnswer = 23,   // u32 id of the question, and what the ranks have answered (status/job_answer.h)
  kMetrics = 24,  // i32 rank, text: all its metrics so far, as Prometheus reads them
  // i32 signal: a scheduler or a person has sent it to this agent; its ranks have it. From the launcher: to
  // the
  // agent of another host
  kSignalled = 25,
  kHeld = 26,        // status::JobNews: ranks of this host that are stopped or in a debugger; none: no longer
  kBoard = 27,       // BoardReport
  kLeave = 28,       // i32 rank: this process of an elastic job was told by SIGTERM to leave
  kFromBranch = 29,  // BranchPart: the agent of another host has said this
  kBranchEnded = 30,  // BranchEnd
  // launcher -> agent
  kForAll = 32,  // u8 type and payload of a message for this agent and for all below it
};

inline constexpr size_t kMaxOutputBytes = 64 << 10;  // payload of one kOutput or kFile message
inline constexpr size_t kMaxMetricsBytes = 1 << 20;  // of one rank
inline constexpr int kProtocol = 6;
// Sent before the first message. Whatever a login script prints before it is skipped.
inline constexpr std::string_view kAgentMagic = "\n\x01rueda-agent-1\x01\n";

struct Hello {
  int32_t protocol = kProtocol;
  std::string release;
  std::string host;  // gethostname
  int32_t pid = 0;
  // The agent removes it. If both processes of a local agent are dead, the launcher does.
  std::string private_dir{};
  int32_t free_port = 0;           // a port that was free a moment ago, for MASTER_PORT
  std::string launcher_address{};  // of the launcher's host, as seen from here; "" = unknown
  std::string own_address{};       // at which the launcher has reached this host; "" = unknown
  int32_t slots = 0;               // that it offers to an elastic job; 0: the launcher knows them
};

struct RankJob {
  int32_t rank = 0;
  Variables env;
};

struct Job {
  std::vector<std::string> argv;
  std::string cwd;
  Variables env{};  // overrides the agent's own
  std::vector<RankJob> ranks{};
  // Hex; the agent puts it into a private file. "": one that has joined knows it already.
  std::string secret;
  std::string stage;  // contents of a file for all ranks, put into the private directory; "" = none
  // The ranks are ended when the launcher is silent for longer. 0 = they are ended at end of file only.
  int32_t ping_timeout_ms = 0;
  int64_t grace_ms = 0;           // from the signal with which a scheduler ends an agent to SIGKILL
  bool binds_cores = false;       // each rank runs on its own share of the host's cores
  bool collects_metrics = false;  // the agent sends kMetrics
  bool is_elastic = false;        // ranks come and go; the agent stays until it is told to stop
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

struct ViewChangeFor {
  int32_t rank = 0;
  status::ViewChange change{};
};

// What a process has written on its board. answer: its vote on a proposal; 0 if it was asked only which
// commit it holds.
struct BoardReport {
  int32_t rank = 0;
  uint16_t round = 0;
  int64_t commit = -1;
  int8_t answer = 0;
};

struct Question {
  uint32_t id = 0;             // an agent drops a question for the next one
  status::JobQuestion text{};  // its timeout: how long to wait for ranks
};

struct AgentMessage {
  MessageType type{};
  Bytes payload;
};
// To the other end.
using SendMessage = std::function<void(MessageType type, std::span<const std::byte> payload)>;

// The whole message with its length, ready to be written.
Bytes encode_message(MessageType type, std::span<const std::byte> payload);
Bytes encode(const Hello& hello);
Bytes encode(const Job& job);
Bytes encode(const RankJob& rank);
Bytes encode(const Exit& exit);
Bytes encode(const ViewChangeFor& change);
Bytes encode(const BoardReport& report);
Bytes encode(const Question& question);
Result<Hello> decode_hello(std::span<const std::byte> payload);
Result<Job> decode_job(std::span<const std::byte> payload);
Result<RankJob> decode_rank_job(std::span<const std::byte> payload);
Result<Exit> decode_exit(std::span<const std::byte> payload);
Result<ViewChangeFor> decode_view_change(std::span<const std::byte> payload);
Result<BoardReport> decode_board_report(std::span<const std::byte> payload);
Result<Question> decode_question(std::span<const std::byte> payload);

// Cuts a stream into messages. A message longer than kMaxMessageBytes is refused before it is buffered.
class MessageReader {
 public:
  // If a magic is given, everything up to its end is skipped first, at most 64 KiB.
  explicit MessageReader(std::string_view magic = {}) : magic_(magic) {}
  void feed(std::span<const std::byte> bytes);
  // Empty if more bytes are needed.
  Result<std::optional<AgentMessage>> next();
  [[nodiscard]] std::string_view skipped() const { return skipped_; }  // what came before the magic

 private:
  Status skip_to_magic();
  std::string magic_;
  std::string skipped_;
  Bytes buffer_;
  size_t read_ = 0;  // bytes of buffer_ already consumed
};

std::string to_hex(std::span<const std::byte> bytes);  // as Job::secret

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace rueda::launch
