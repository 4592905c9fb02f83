// Which stage of a call over NCCL follows which, and when a call waits. The backend does what a stage asks
// for (nccl.h), finds out when it has ended, and asks here what comes next. Pure.
//
//   an allreduce of a new process set: kStarting, kSettingUp, kConnecting, kPreparing, kReducing, kStoring,
//   kDone; of a known one: kStarting, kPreparing, kReducing, kStoring, kDone
#pragma once

#include <cstdint>

namespace rueda::nccl {

enum class Stage : uint8_t {
  kIdle,        // no call
  kSyncing,     // the call may be cancelled: it goes on when all members have come (host_sync.h)
  kLeaving,     // it is cancelled
  kStarting,    // what is known of its process set is looked up
  kSettingUp,   // the process set is new here: the members tell which GPU they have, and one makes an id
  kConnecting,  // NCCL connects the members, in the background
  kProbing,     // the process set is the world: an allreduce measures the fabric (probe.h), once
  kPreparing,   // the call is divided into parts that fit
  kAgreeing,    // an Adasum needs more memory than any before: the members say whether they have it
  kWaiting,     // the queue of the stream has no room for the next part of the call
  kReducing,    // the stream waits for the tensors of the part, packs and scales; NCCL enqueues its group
  kExchanging,  // NCCL enqueues the exchange of one level of an Adasum (adasum.h)
  kBetween,     // of a hierarchical allreduce (levels.h): shares are added between hosts
  kGathering,   // of the same: NCCL enqueues what gathers the shares inside the host
  kStoring,     // results are scaled and unpacked on the stream
  kHandedOver,  // the call goes through host memory
  kDone         // all parts are launched, or the call is cancelled
};

// What decides what comes next, as far as it is known after a stage.
struct Facts {
  bool is_refused = false;       // the members of the process set cannot use NCCL together
  bool is_connected = false;     // they have a communicator
  bool has_probe = false;        // the fabric is to be measured by one more call
  bool lacks_memory = false;     // for an Adasum, as far as the members have said
  bool has_room = false;         // for the next part, in the queue of the stream
  bool is_hierarchical = false;  // the call is
  bool has_share = false;        // and this member holds a share of its host's sums
  bool has_exchange = false;     // one more level of an Adasum
  bool has_part = false;         // one more part of the call
};

Stage first_stage(bool may_be_cancelled);
// The stage that follows when this one has ended well.
Stage stage_after(Stage stage, const Facts& facts);

// Ends when it is begun.
constexpr bool is_immediate(Stage stage) {
  return stage == Stage::kStarting || stage == Stage::kPreparing || stage == Stage::kStoring;
}
// Waits for other members, on the host.
constexpr bool is_syncing(Stage stage) {
  return stage == Stage::kSyncing || stage == Stage::kLeaving || stage == Stage::kSettingUp ||
         stage == Stage::kAgreeing || stage == Stage::kBetween;
}
// NCCL was given something for the stream.
constexpr bool is_enqueueing(Stage stage) {
  return stage == Stage::kProbing || stage == Stage::kReducing || stage == Stage::kExchanging ||
         stage == Stage::kGathering;
}
// NCCL is asked again and again what has become of what it was given.
constexpr bool asks_nccl(Stage stage) { return stage == Stage::kConnecting || is_enqueueing(stage); }

}  // namespace rueda::nccl
