#pragma once

#include <string>

#include "rueda/base/bytes.h"

namespace rueda::launch {

// Of an agent that nobody has started: it joins an elastic job. Its ranks run in its own environment and
// folder, as in a container.
struct Joining {
  std::string name;  // of its host, in the job
  int slots = 1;
  Bytes secret{};  // of the job
  std::string launcher_address{}, own_address{};
};

}  // namespace rueda::launch
