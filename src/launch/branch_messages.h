// The messages by which an agent starts other agents, its *branches*, and carries the bytes between them and
// the launcher. What the launcher sends down is cut into whole messages, because an agent adds messages of
// its own between them (kForAll); what comes up is a stream of bytes. Messages of a branch's own branches
// travel inside those of the branch. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "launch/agent_messages.h"
#include "launch/starters/starter.h"

namespace rueda::launch {

// What wrapping adds to a message on its way down a tree, at the most: 9 bytes an agent.
inline constexpr size_t kMaxWrapping = 1024;

struct BranchOrder {   // kBranch
  int32_t branch = 0;  // its number: that of the host in the job
  std::string host;
  std::string binary;  // absolute path of this program
  SshOptions ssh{};
};

struct BranchPart {  // kFromBranch
  int32_t branch = 0;
  Stream stream{};
  std::span<const std::byte> bytes;  // borrowed
};

struct BranchEnd {  // kBranchEnded: nothing more comes from it
  int32_t branch = 0;
  int32_t wait_status = 0;  // of ssh
  std::string trouble{};    // why ssh could not be started
};

Bytes encode(const BranchOrder& order);
Bytes encode(const BranchPart& part);
Bytes encode(const BranchEnd& end);
Result<BranchOrder> decode_branch_order(std::span<const std::byte> payload);
Result<BranchPart> decode_branch_part(std::span<const std::byte> payload);
Result<BranchEnd> decode_branch_end(std::span<const std::byte> payload);

// The payload of kToBranch (a message) and of kEndBranch (a signal): the number, and what follows it.
Bytes for_branch(int32_t branch, std::span<const std::byte> rest);
// The payload of kForAll: every agent does what the message says, and passes it on to its branches.
Bytes for_all(MessageType type, std::span<const std::byte> payload);
Result<AgentMessage> decode_for_all(std::span<const std::byte> payload);

}  // namespace rueda::launch
