// What ranks say to the coordinator, as the leaders of hosts pass it on: one message for all ranks that say
// the same. Plain values, and their encoding, which bounds every field.
#pragma once

#include <span>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/base/status.h"
#include "rueda/control/message_types.h"
#include "rueda/control/rank_set.h"

namespace rueda::control {

struct Parcel {
  RankSet from;  // each of them has sent this message
  MessageType type = MessageType::kRequests;
  Bytes payload;

  bool operator==(const Parcel&) const = default;
};

// Whether ranks send messages of this type to the coordinator, so that a parcel may have one.
bool rises(MessageType type);

Bytes encode(std::span<const Parcel> parcels);
// Refuses types that do not rise, and parcels of no rank.
Result<std::vector<Parcel>> decode_parcels(std::span<const std::byte> payload);

}  // namespace rueda::control
