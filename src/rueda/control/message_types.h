// Control messages, which ranks and coordinator send each other: their types, their header, and the payloads
// other than requests and responses (messages.h has these). Every field is bounded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::control {

// On the wire: {u32 payload bytes, u8 type, 3 zero bytes}, then the payload. Between a rank and the
// coordinator there may be leaders of hosts: they pass on what is for others, and collect what their ranks
// say (relay.h).
enum class MessageType : uint8_t {
  kRequests = 1,       // rank -> coordinator: Submitted
  kResponses = 2,      // coordinator -> rank
  kHeartbeat = 3,      // parent <-> child: Heartbeat, for liveness and clock offsets
  kAbort = 4,          // both ways: Abort
  kShutdown = 5,       // rank -> coordinator: I want to shut down; coordinator -> rank: all shut down
  kStallReport = 6,    // coordinator -> rank: text
  kShowStacks = 7,     // coordinator -> rank: others wait for you; write to the log where you are
  kDone = 8,           // rank -> coordinator: I have stopped; coordinator -> rank: all have stopped, close
  kCosts = 9,          // coordinator -> rank, at the end of init: measured costs of links
  kPlanDepart = 10,    // rank -> coordinator: I submit something that is not in the plan (PlanReport)
  kPlanFreeze = 11,    // coordinator -> rank: start no more buckets, tell me how far you are (PlanReport)
  kPlanPosition = 12,  // rank -> coordinator: how far I am (PlanReport)
  kFacts = 13,         // rank -> coordinator: how I am (facts.h)
  kConnect = 14,       // rank -> … -> rank: dial that rank (ConnectRequest)
  kStatements = 15,    // leader -> parent: what its ranks say (statement.h)
  kRouted = 16,        // coordinator -> … -> rank: a message for one rank (RoutedMessage)
  kProbe = 17,         // coordinator -> rank and back: when it was sent; are you alive?
};
inline constexpr size_t kControlHeaderBytes = 8;

struct ControlHeader {
  uint32_t bytes = 0;
  MessageType type = MessageType::kHeartbeat;
};
std::array<std::byte, kControlHeaderBytes> encode_header(const ControlHeader& header);
// Refuses a payload of more than kMaxMessageBytes.
Result<ControlHeader> decode_header(std::span<const std::byte, kControlHeaderBytes> raw);

inline constexpr size_t kMaxSentenceBytes = 1u << 20;  // of a failure or an abort
inline constexpr int kCodeCount = static_cast<int>(Code::kStalled) + 1;
// malformed: why a payload is refused. is_whole: a payload was read to its last byte, and no further.
Status malformed(std::string_view what);
inline bool is_whole(const ByteReader& reader) { return reader.is_ok() && reader.is_at_end(); }

// A bucket that a rank has started and not finished.
struct BucketUnderWay {
  int64_t bucket = 0;         // counted from the beginning of the plan
  std::vector<int32_t> sent;  // [ranks] messages sent to each rank; empty: none

  bool operator==(const BucketUnderWay&) const = default;
};

// What ranks and coordinator tell each other when a plan ends.
struct PlanReport {
  int64_t plan_number = 0;
  int64_t started = 0;                    // kPlanPosition: buckets the sender has started
  std::vector<BucketUnderWay> under_way;  // kPlanPosition: those of them that it has not finished
};
Bytes encode(const PlanReport& news);
Result<PlanReport> decode_plan_news(std::span<const std::byte> payload);

// From the clock of the sender to that of the coordinator.
struct ClockOffset {
  Nanos offset = 0;
  Nanos round_trip = 0;  // that it was measured with

  bool operator==(const ClockOffset&) const = default;
};

// The time on the sender's clock, and an echo of the last heartbeat from the other side: what NTP needs for
// one sample of the offset. A parent adds its own offset, so that those of a tree add up.
struct Heartbeat {
  Nanos sent = 0;
  Nanos echo_sent = 0;                    // `sent` of the heartbeat this one answers, 0 if none
  Nanos echo_received = 0;                // when it arrived here
  std::optional<ClockOffset> clock = {};  // of the sender, if it is a parent that knows it
};
Bytes encode(const Heartbeat& heartbeat);
Result<Heartbeat> decode_heartbeat(std::span<const std::byte> payload);

// kShutdown from the coordinator: the world rank that asked for it first.
Bytes encode_rank(Rank rank);
Rank decode_rank(std::span<const std::byte> payload);  // -1 where there is none

// kConnect: a rank wants data channels to one that would have to dial, and whose program may be far behind.
struct ConnectRequest {
  Rank whom = -1;  // it dials
  Rank to = -1;    // it waits for that
};
Bytes encode(const ConnectRequest& request);
// size: of the world. Refuses ranks that it does not have, and a pair whose higher rank would wait.
Result<ConnectRequest> decode_connect(std::span<const std::byte> payload, Rank size);

// What the coordinator says to one rank, which may not be its child.
struct RoutedMessage {
  Rank to = -1;
  MessageType type = MessageType::kProbe;
  Bytes payload;
};
Bytes encode(const RoutedMessage& routed);
// Refuses a rank that the world does not have, and types that are for all ranks.
Result<RoutedMessage> decode_routed(std::span<const std::byte> payload, Rank size);

Bytes encode_time(Nanos time);
Result<Nanos> decode_time(std::span<const std::byte> payload);

struct Abort {
  Rank lost = -1;
  Code code = Code::kPeerLost;
  std::string why;
  // The sender is the parent of the lost rank and has lost its control channel: nothing more can be asked.
  bool is_certain = false;
};
Bytes encode(const Abort& abort);
Result<Abort> decode_abort(std::span<const std::byte> payload);

}  // namespace rueda::control
