// Divides the time of one rank in one step among what it was spent on. Pure.
//
// The thread that trains is either blocked in rueda, or waits for its input, or computes. What it is blocked
// by is read off the calls under way at that moment: if one of them transfers, the time is transfer; if not,
// packing; if not, waiting for the rank that comes last; then negotiation, then the queue behind other calls.
// If all have ended, the thread is about to wake up, which takes long where no core is free.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"

namespace rueda::timeline {

enum class StepShare : uint8_t {
  kCompute,
  kInput,
  kWaiting,
  kTransfer,
  kPacking,
  kNegotiation,
  kQueue,
  kWaking,
  kOther
};
inline constexpr size_t kShares = 9;
std::string_view name_of(StepShare share);

// A call as its rank saw it, on the common clock, with what the other ranks' files add.
struct CallTimes {
  Nanos submitted = 0, ordered = 0, started = 0, transfer_began = 0, unpack_began = 0, ended = 0;
  Nanos last_submitted = 0, last_started = 0;   // of all members; 0: not known
  Rank submitted_last = -1, started_last = -1;  // which of them; -1: this rank, or not known

  // When the last rank had its tensors ready, as far as this is known. Of calls that rank 0 ordered.
  [[nodiscard]] Nanos all_submitted() const {
    return submitted_last < 0 ? submitted : std::clamp(last_submitted, submitted, ordered);
  }
};

struct Interval {
  Nanos begin = 0, end = 0;
};

struct RankStepTimes {
  Interval step = {};
  std::vector<CallTimes> calls = {};
  std::vector<Interval> blocked = {}, inputs = {};  // may overlap
};

struct Attribution {
  std::array<Nanos, kShares> shares{};
  std::unordered_map<Rank, Nanos> waiting_for;  // of shares[kWaiting]
  std::vector<Interval> transfers;              // shares[kTransfer], one after the other
  Nanos under_way = 0;                          // at least one call had started and not ended
  Nanos hidden = 0;                             // of that, while the thread was not blocked

  [[nodiscard]] Nanos of(StepShare share) const { return shares[static_cast<size_t>(share)]; }
  [[nodiscard]] Nanos total() const;
};

Attribution attribute(const RankStepTimes& times);

}  // namespace rueda::timeline
