// From an environment to a connected world: detect, meet, exchange facts, connect, measure. Every failure is
// told to the other ranks through the store, so that all of init fails everywhere, soon, with the same cause.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/memory/arena.h"
#include "rueda/runtime/session.h"
#include "rueda/store/world.h"

namespace rueda::runtime {

struct InitOptions {
  std::vector<std::vector<Rank>> process_sets;  // static; any order of ranks
  Rank expected_size = 0;                       // 0 = any
  std::shared_ptr<memory::Arena> arena = {};    // this process's buckets, shown to the ranks of its host
};

// What outlives one init within a process: the place to meet, and how many times we have met there.
class MeetingPlace {
 public:
  // Fills in what only the launcher knows. It answers a process once, so the answer is kept.
  Result<store::World> complete(store::World detected, Deadline deadline);
  // Opens the rendezvous, or reuses it when the world is the one of the last call.
  Status open(const store::World& world, const std::string& interface, Deadline deadline);
  [[nodiscard]] store::Rendezvous& rendezvous() { return rendezvous_; }
  // Attempts count on every rank alike, failed ones included: they name the keys of one init.
  Epoch next_attempt() { return ++attempts_; }

 private:
  std::string detected_;  // identity of the world that completed_ completes
  store::World completed_;
  std::string identity_;  // of the world that rendezvous_ serves
  store::Rendezvous rendezvous_;
  Epoch attempts_ = 0;
};

Result<Session> bootstrap(MeetingPlace& place, InitOptions options, const store::GetEnv& get_env);

}  // namespace rueda::runtime
