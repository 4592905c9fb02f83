// What ranks and coordinator tell each other: values, and their fixed-layout encoding, every field bounded.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/control/terms.h"

namespace rueda::control {

// One tensor one rank has ready.
struct Request : Terms {
  int32_t process_set = 0;
  std::string name;
  std::vector<int64_t> shape;
  Rank root = -1;               // world rank; broadcast
  std::vector<int32_t> splits;  // alltoall: resolved by the submitting rank, one entry per member
  int32_t group_index = 0;      // position in its group
  int32_t group_size = 1;       // 1 = alone
  std::string group_name;       // name of the group's first member; empty when alone
  int64_t tag = 0;              // join
  int32_t priority = 0;         // see rueda.h; waits in control/turns.h
  std::vector<Rank> set_ranks;  // add-set: the world ranks asked for
  int32_t set_id = 0;           // remove-set
  enum class Kind : uint8_t { kTensor = 0, kAddSet = 1, kRemoveSet = 2 } kind = Kind::kTensor;

  bool operator==(const Request&) const = default;
};

// One tensor of a Response.
struct Entry {
  std::string name;
  std::vector<int64_t> shape;  // of the coordinator's first request: what a joined rank needs to make zeros
  // allgather: first dimension of each member. reducescatter: rows each member receives.
  // alltoall: n * n rows, [src * n + dst]. Else empty. Member order of the set.
  std::vector<int64_t> rows;

  // kError: the world ranks whose submission fails; a later submission of the same name is another matter.
  std::vector<Rank> failed_ranks{};

  bool operator==(const Entry&) const = default;
};

// Messages one rank has sent to another for a bucket that does not run.
struct Flow {
  Rank from = -1, to = -1;
  int32_t messages = 0;

  bool operator==(const Flow&) const = default;
};

// One thing that every member of the set does next, in this order everywhere.
struct Response : Terms {  // device: of some rank
  enum class Kind : uint8_t {
    kRun = 0,
    kError = 1,
    kJoined = 2,
    kSetAdded = 3,
    kSetRemoved = 4,
    kPlanBucket = 5,  // a bucket of the plan that the next kPlanBegin starts
    kPlanBegin = 6,   // requests that were not answered belong to the plan, or are sent again
    kPlanEnd = 7,     // the first buckets run; the rest is negotiated
  };
  Kind kind = Kind::kRun;
  int32_t process_set = 0;
  Rank root = -1;               // world rank
  std::vector<Entry> entries;   // more than one: fused into one transfer
  std::vector<Rank> joined;     // world ranks that take part with identity elements
  std::string error;            // kError: the same text on every rank
  Code code = Code::kMismatch;  // kError
  Rank last_joined = -1;        // kJoined
  int64_t tag = 0;              // kJoined: the largest; kPlanBegin: generation; kPlanEnd: buckets that run
  std::vector<Rank> set_ranks;  // kSetAdded: ascending world ranks
  int32_t set_id = 0;           // kSetAdded, kSetRemoved
  std::vector<Flow> flows;      // kPlanEnd

  bool operator==(const Response&) const = default;
};

// What a rank holds of a response: the buckets of a learned plan run step after step.
using SharedResponse = std::shared_ptr<const Response>;

// A frame's payload. `encode` never fails; `decode` refuses what is not exactly one well-formed message.
Bytes encode(std::span<const Request> requests);
Bytes encode(std::span<const Response> responses);
Result<std::vector<Request>> decode_requests(std::span<const std::byte> payload);
Result<std::vector<Response>> decode_responses(std::span<const std::byte> payload);

// Requests, and how many plans their sender had seen begin: those from before a plan's begin are void.
struct Submitted {
  int64_t plans_begun = 0;
  std::vector<Request> requests;
};
Bytes encode(int64_t plans_begun, std::span<const Request> requests);
Result<Submitted> decode_submitted(std::span<const std::byte> payload);

// What ranks and coordinator tell each other when a plan ends.
struct PlanNews {
  int64_t generation = 0;
  int64_t started = 0;        // kPlanPosition: buckets the sender has started
  std::vector<int32_t> sent;  // kPlanPosition: messages for the last of them, to each rank; empty: none
};
Bytes encode(const PlanNews& news);
Result<PlanNews> decode_plan_news(std::span<const std::byte> payload);

// Control frames: {u32 payload bytes, u8 type, 3 bytes zero} then the payload.
enum class FrameType : uint8_t {
  kRequests = 1,       // rank -> coordinator: Submitted
  kResponses = 2,      // coordinator -> rank
  kHeartbeat = 3,      // both ways: Heartbeat, for liveness and clock offsets
  kAbort = 4,          // both ways: {i32 lost world rank or -1, i32 code, string why}
  kShutdown = 5,       // rank -> coordinator: I leave in good order; coordinator -> rank: everybody does
  kStallReport = 6,    // coordinator -> rank: text
  kTrace = 7,          // rank -> coordinator: a batch of timeline events
  kDone = 8,           // rank -> coordinator: I have stopped; coordinator -> rank: all have, close
  kCosts = 9,          // coordinator -> rank at start: measured link costs
  kPlanDepart = 10,    // rank -> coordinator: I submit something else than the plan (PlanNews)
  kPlanFreeze = 11,    // coordinator -> rank: start no more buckets, tell me how far you are (PlanNews)
  kPlanPosition = 12,  // rank -> coordinator: so far (PlanNews)
};
inline constexpr size_t kFrameHeaderBytes = 8;

struct FrameHeader {
  uint32_t bytes = 0;
  FrameType type = FrameType::kHeartbeat;
};
std::array<std::byte, kFrameHeaderBytes> encode_header(const FrameHeader& header);
Result<FrameHeader> decode_header(
    std::span<const std::byte, kFrameHeaderBytes> raw);  // bounds by kMaxFrameBytes

// The sender's clock now, and an echo of the other side's last heartbeat: what NTP needs for one offset
// sample.
struct Heartbeat {
  Nanos sent = 0;
  Nanos echo_sent = 0;      // `sent` of the heartbeat this one answers, 0 if none
  Nanos echo_received = 0;  // when it arrived here
};
Bytes encode(const Heartbeat& heartbeat);
Result<Heartbeat> decode_heartbeat(std::span<const std::byte> payload);

// kShutdown from the coordinator: the world rank that asked for it first.
Bytes encode_rank(Rank rank);
Rank decode_rank(std::span<const std::byte> payload);  // -1 where there is none

struct Abort {
  Rank lost = -1;
  Code code = Code::kPeerLost;
  std::string why;
};
Bytes encode(const Abort& abort);
Result<Abort> decode_abort(std::span<const std::byte> payload);

}  // namespace rueda::control
