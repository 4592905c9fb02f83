// The stacks of all ranks, each different one once. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rueda/base/types.h"

namespace rueda::observe {

struct RankStacks {
  Rank rank = -1;
  int pid = 0;
  std::string job, host;  // job: empty if it has not called init
  nlohmann::json stacks;  // as status::stacks_json makes it
};

// is_native: also native frames, and threads that run no Python. Otherwise they are shown only for a main
// thread without Python frames. Ranks of several jobs are not put together.
std::string folded(const std::vector<RankStacks>& all, bool is_native);

// {"ranks": [{"rank", "pid", "job", "host", and what its process has answered}]}
std::string stacks_json(const std::vector<RankStacks>& all);

}  // namespace rueda::observe
