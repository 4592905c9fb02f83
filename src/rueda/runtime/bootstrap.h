// Makes a connected world from the environment: detects the launcher, meets the other ranks, exchanges peer
// info, connects and measures. A failure is told to the other ranks through the store, so that init fails
// soon on all ranks and with the same cause.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/memory/arena.h"
#include "rueda/runtime/rendezvous_point.h"
#include "rueda/runtime/session.h"
#include "rueda/store/world.h"

namespace rueda::runtime {

struct InitOptions {
  std::vector<std::vector<Rank>> process_sets;  // static; any order of ranks
  std::vector<int32_t> own_sets = {};           // as in PeerInfo
  Rank expected_size = 0;                       // 0 = any
  // The shared buffers of this process; the other ranks of its host map them.
  std::shared_ptr<memory::Arena> arena = {};
  // An MPI communicator, as a number: its ranks are the ranks of the job.
  std::optional<uint64_t> communicator = {};
  // Of an elastic job: the place of this process instead of the one that the environment gives.
  std::function<store::World(store::World)> seat = {};
  // Asked on the calling thread while init waits for other ranks; true ends the wait.
  store::Interrupted is_interrupted = {};
};

Result<Session> bootstrap(RendezvousPoint& point, InitOptions options, const store::GetEnv& get_env);

}  // namespace rueda::runtime
