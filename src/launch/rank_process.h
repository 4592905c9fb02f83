// A rank that an agent has started, and the pipes in which the rank writes.
#pragma once

#include <sys/types.h>

#include "launch/agent_messages.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

struct RankProcess {
  RankJob job;
  pid_t pid = 0;
  UniqueFd out{}, err{};
  bool has_ended = false;
};

// Hands on what the rank has written, one piece. Returns false at end of file.
bool pass_output(RankProcess& rank, Stream stream, const SendMessage& send);
// Hands on all that is in its pipes.
void drain(RankProcess& rank, const SendMessage& send);

}  // namespace rueda::launch
