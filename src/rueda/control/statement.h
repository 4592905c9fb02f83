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

struct Statement {
  RankSet from;  // each of them has sent this message
  MessageType type = MessageType::kRequests;
  Bytes payload;

  bool operator==(const Statement&) const = default;
};

// Whether ranks send messages of this type to the coordinator, so that a statement may have one.
bool rises(MessageType type);

Bytes encode(std::span<const Statement> statements);
// Refuses types that do not rise, and statements of no rank.
Result<std::vector<Statement>> decode_statements(std::span<const std::byte> payload);

}  // namespace rueda::control
