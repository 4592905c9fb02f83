// What a rank tells the coordinator about itself, and about other processes of its host, whenever it answers
// a heartbeat. The judge (judge.h) tells from these facts why others wait for it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/clock.h"
#include "rueda/base/process.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::control {

// What one rank has seen of the process of another rank on its host.
struct PeerProcess {
  Rank of = 0;
  ProcessState state = ProcessState::kUnknown;
};

// The first tensor of a rank with NaN or infinity.
struct NotFinite {
  std::string tensor;
  int64_t element = 0;  // the first such element
  int64_t call = 0;     // how many tensors the rank had submitted before
};

// A rank whose host has acknowledged nothing to this rank for a second or longer.
struct Unreached {
  Rank of = 0;
  Nanos age = 0;
};

// For how long a rank has taken part in collectives in this epoch: straggler_detector.h.
struct Participation {
  Nanos at = 0;        // on the rank's own clock
  Nanos in_world = 0;  // until then; in collectives of all ranks
  Nanos in_any = 0;    // in those of any process set
};

struct Facts {
  ProcessUse use;
  Nanos input_for = 0;       // for so long the program has waited for input; 0 = it does not
  bool is_blocked = false;   // a thread waits for an operation
  int64_t plan_number = 0;   // of the learned plan that runs; 0 = none does
  int64_t plan_started = 0;  // the number of the bucket that this rank starts next
  int64_t plan_open = -1;    // the first of its buckets under way; -1 = none is
  Nanos plan_stuck_for = 0;  // for so long the bucket under way has not moved; 0 = none is under way
  std::string plan_lacks;    // the next tensor that this rank must submit in the plan
  Participation participation;
  std::vector<PeerProcess> peer_processes;
  std::optional<NotFinite> not_finite;
  std::vector<Unreached> unreached;
};

Bytes encode(const Facts& facts);
Result<Facts> decode_facts(std::span<const std::byte> payload);

}  // namespace rueda::control
