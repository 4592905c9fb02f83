// This process and the processes that started it: who set a variable, and when.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rueda::store {

// A process as it was when its program began.
struct Process {
  std::string program;  // its name for the kernel, at most 15 characters
  std::optional<std::map<std::string, std::string, std::less<>>> variables;  // empty: cannot be read
  std::string identity;  // "4711-88123": pid and time of its start, which no two processes of a host share
};

// This process, its parent, the parent of that, and so on, as far as the system tells. Empty: it tells
// nothing.
using Ancestry = std::vector<Process>;

// Reads /proc. Variables of processes of other users count as unreadable. Any thread.
Ancestry read_ancestry();

}  // namespace rueda::store
