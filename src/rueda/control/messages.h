// Requests and responses: what the ranks ask of the coordinator, and what it answers. Plain values, and their
// encoding, which has a fixed layout and bounds every field.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/control/row_table.h"
#include "rueda/control/terms.h"

namespace rueda::control {

// ---- requests: what one rank asks for ----

// A tensor, as ranks and coordinator know it.
struct NameInSet {
  int32_t process_set = 0;
  std::string name;

  auto operator<=>(const NameInSet&) const = default;
};

// One tensor that one rank has ready.
struct TensorRequest : Terms {
  int32_t process_set = 0;
  std::string name;
  uint16_t numbered_at = 0;  // the byte of the name at which a running number begins; 0: it has none
  std::vector<int64_t> shape;
  Rank root = -1;               // broadcast: world rank
  std::vector<int32_t> splits;  // alltoall: resolved by the submitting rank, one entry per member
  int32_t group_index = 0;      // position in its group
  int32_t group_size = 1;       // 1 = alone
  std::string group_name;       // name of the group's first member; empty when alone
  int64_t tag = 0;              // join: any number, see Joined
  int32_t priority = 0;         // see rueda.h and control/priority_queue.h
  // Its memory is in use by a tensor that its rank has submitted before and that has not ended. No transfer
  // may contain both.
  bool shares_memory = false;
  // Tensors of other process sets that use its memory and come before it, if the coordinator has not ordered
  // them yet. Only if shares_memory.
  std::vector<NameInSet> after;

  bool operator==(const TensorRequest&) const = default;
};

struct AddSet {
  std::vector<Rank> ranks;  // world ranks

  bool operator==(const AddSet&) const = default;
};

struct RemoveSet {
  int32_t id = 0;

  bool operator==(const RemoveSet&) const = default;
};

// A change of the process sets. All ranks of the world must ask for the same one.
struct SetChange {
  std::string name;  // the answer carries it; in flight only once, like the name of a tensor
  std::variant<AddSet, RemoveSet> what;

  bool operator==(const SetChange&) const = default;
};

using Request = std::variant<TensorRequest, SetChange>;

// The process set and the name by which a response refers to the request.
std::pair<int32_t, const std::string&> name_of(const Request& request);

// ---- responses: what every rank does next, in this order everywhere ----

// One tensor of a bucket.
struct Entry {
  std::string name;
  std::vector<int64_t> shape;  // of the first request; a rank that has joined needs it
  // In the order of the members. allgather: the first dimension of each. reducescatter: the rows that each
  // receives. alltoall: n * n rows, [src * n + dst]. Otherwise empty.
  RowTable rows;
  uint16_t numbered_at = 0;  // as in TensorRequest
  int64_t stride = 0;        // in a plan: by how much that number grows from pass to pass
  // In a plan: rows are those of the step in which it was learned, and told anew in each pass; row_counts.h.
  bool rows_vary = false;

  bool operator==(const Entry&) const = default;
};

// A collective that every member of the set runs.
struct Bucket : Terms {  // device: that of one of the ranks
  int32_t process_set = 0;
  Rank root = -1;              // broadcast: world rank
  std::vector<Entry> entries;  // more than one: fused into one transfer
  std::vector<Rank> joined;    // world ranks that take part with identity elements
  CallTuning tuning = {};      // in a plan

  bool operator==(const Bucket&) const = default;
};

// A name that fails, and the ranks whose submission of it fails. A later submission of the name
// is not affected.
struct FailedName {
  std::string name;
  std::vector<Rank> ranks;  // world ranks

  bool operator==(const FailedName&) const = default;
};

// Requests that cannot be served: tensors, or a change of process sets.
struct Failure {
  int32_t process_set = 0;
  std::vector<FailedName> failed;
  Code code = Code::kMismatch;
  std::string error;  // the same text on every rank

  bool operator==(const Failure&) const = default;
};

// All ranks have joined.
struct Joined {
  std::vector<std::string> names;  // of the requests; ranks may use different ones
  Rank last = -1;                  // the rank that joined last
  int64_t tag = 0;                 // the largest of all ranks

  bool operator==(const Joined&) const = default;
};

struct SetAdded {
  std::vector<std::string> names;  // of the requests
  int32_t id = 0;
  std::vector<Rank> ranks;  // ascending world ranks

  bool operator==(const SetAdded&) const = default;
};

struct SetRemoved {
  std::vector<std::string> names;  // of the requests
  int32_t id = 0;

  bool operator==(const SetRemoved&) const = default;
};

// One bucket of the plan that begins with the next PlanBegin.
struct PlanBucket {
  Bucket bucket;

  bool operator==(const PlanBucket&) const = default;
};

// The members of a process set in which a plan has buckets.
struct PlanSet {
  int32_t id = 0;
  std::vector<Rank> ranks;  // ascending world ranks

  bool operator==(const PlanSet&) const = default;
};

// A plan begins. Requests that have not been answered become part of it, or are sent again.
struct PlanBegin {
  int64_t plan_number = 0;
  std::vector<PlanSet> sets;  // without the world

  bool operator==(const PlanBegin&) const = default;
};

// How many messages one rank has sent to another for a bucket that does not run.
struct Flow {
  int64_t bucket = 0;  // counted from the beginning of the plan
  Rank from = -1, to = -1;
  int32_t messages = 0;

  bool operator==(const Flow&) const = default;
};

// A plan ends. What else ranks have started does not run, and is negotiated.
struct PlanEnd {
  std::vector<int64_t> runs;  // [buckets of the plan] how often each has run
  std::vector<Flow> flows;    // for those that do not run
  bool is_change = false;     // one with the same tensors in other buckets begins at once

  bool operator==(const PlanEnd&) const = default;
};

// The position of an alternative is its number on the wire.
using Response = std::variant<Bucket, Failure, Joined, SetAdded, SetRemoved, PlanBucket, PlanBegin, PlanEnd>;

// Shared, because the buckets of a learned plan run again and again.
using SharedBucket = std::shared_ptr<const Bucket>;

// Calls answered(process_set, name) for each submission of rank `me` that the response answers.
template <class F>
void for_each_answer(const Response& response, Rank me, const F& answered) {
  const auto has_me = [me](const std::vector<Rank>& ranks) {
    return std::find(ranks.begin(), ranks.end(), me) != ranks.end();
  };
  if (const auto* bucket = std::get_if<Bucket>(&response)) {
    if (has_me(bucket->joined)) return;  // what this rank has submitted since belongs to a later round
    for (const Entry& entry : bucket->entries) answered(bucket->process_set, entry.name);
  } else if (const auto* failure = std::get_if<Failure>(&response)) {
    for (const FailedName& one : failure->failed)
      if (has_me(one.ranks)) answered(failure->process_set, one.name);
  } else {
    const std::vector<std::string>* names = nullptr;
    if (const auto* joined = std::get_if<Joined>(&response)) names = &joined->names;
    if (const auto* added = std::get_if<SetAdded>(&response)) names = &added->names;
    if (const auto* removed = std::get_if<SetRemoved>(&response)) names = &removed->names;
    if (names == nullptr) return;  // responses about plans answer no request
    for (const std::string& name : *names) answered(0, name);
  }
}

// ---- encoding ----

// The payloads of control messages. encode() never fails. The decoders refuse everything that is not exactly
// one well-formed payload.
Bytes encode(std::span<const Response> responses);
Result<std::vector<Response>> decode_responses(std::span<const std::byte> payload);

// Those of many ranks are equal, and in memory once.
using SharedRequests = std::shared_ptr<const std::vector<Request>>;
// Requests, and how many plans their sender had seen begin. Requests that were sent before a plan
// began are void.
struct Submitted {
  int64_t plans_begun = 0;
  std::vector<Request> requests;
};
Bytes encode(int64_t plans_begun, std::span<const Request> requests);
Result<Submitted> decode_submitted(std::span<const std::byte> payload);

}  // namespace rueda::control
