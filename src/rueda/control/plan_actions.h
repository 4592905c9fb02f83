// What the planner and the plan maker want done, in order. Values.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "rueda/control/message_types.h"
#include "rueda/control/messages.h"

namespace rueda::control {

// ---- actions of every rank ----
struct TellDeparture {  // tell the coordinator, which calls on_depart()
  PlanReport news;
  std::string why;
};
// Stop sending for the buckets under way, add to the news what was sent for them, and tell the coordinator.
struct TellPosition {
  PlanReport news;
};
struct Negotiate {  // as if they were submitted now, in this order
  std::vector<Request> requests;
};
struct PlanBegun {};
struct PlanOver {
  bool is_change = false;  // one with other buckets begins at once
};
struct StartBucket {
  SharedBucket bucket;
  int64_t number = 0;         // counted from the beginning of the plan
  size_t first_position = 0;  // of its first tensor among all tensors of the plan
  // The bucket with the number before it, which starts first and tells the rows of this one; mostly null.
  SharedBucket row_counts = nullptr;
};
// Calls that start from now on belong to another generation, so that a cancelled call is not taken for the
// call that comes in its place.
struct SetGeneration {
  uint16_t generation = 0;
};
// A bucket that this rank has started. arrivals: [ranks] messages that each rank has sent to this
// rank for it.
struct Cancel {
  int64_t number = 0;
  std::vector<int32_t> arrivals;
};
struct Resume {};  // sending for the other buckets under way
// A bucket that this rank has not started; others have sent messages for it and cancelled it.
struct Discard {
  int64_t number = 0;
  Bucket bucket;
  std::vector<int32_t> arrivals;
};
// ---- actions of the coordinator ----
struct FreezeAll {  // every rank, itself included; each calls on_freeze()
  PlanReport news;
};
struct Respond {  // to every rank, itself included, in the global order
  std::vector<Response> responses;
};

using PlannerAction = std::variant<TellDeparture, TellPosition, Negotiate, PlanBegun, PlanOver, StartBucket,
                                   SetGeneration, Cancel, Resume, Discard, FreezeAll, Respond>;
using PlannerActions = std::vector<PlannerAction>;

}  // namespace rueda::control
