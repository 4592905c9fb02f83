// From an environment to a connected world: detect, meet, exchange peer info, connect, measure. Every failure
// is told to the other ranks through the store, so that all of init fails everywhere, soon, with the same
// cause.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/memory/arena.h"
#include "rueda/runtime/init_exchange.h"
#include "rueda/runtime/session.h"
#include "rueda/store/world.h"

namespace rueda::runtime {

struct InitOptions {
  std::vector<std::vector<Rank>> process_sets;  // static; any order of ranks
  Rank expected_size = 0;                       // 0 = any
  std::shared_ptr<memory::Arena> arena =
      {};  // shared buffers of this process, shown to the ranks of its host
};

Result<Session> bootstrap(RendezvousPoint& point, InitOptions options, const store::GetEnv& get_env);

}  // namespace rueda::runtime
