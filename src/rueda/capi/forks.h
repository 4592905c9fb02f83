// What a child of fork() has of the engine of its parent: what the parent knew of the job at the fork, and
// nothing else. The threads and connections stay with the parent. Any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rueda/base/types.h"
#include "rueda/runtime/engine.h"
#include "rueda/runtime/peer_info.h"

namespace rueda::capi {

// The place of this process among the ranks; -1 everywhere before init.
struct Topology {
  Epoch epoch = -1;
  Rank rank = -1;
  Rank size = -1;
  runtime::RankPlacement place{.local_rank = -1, .local_size = -1, .cross_rank = -1, .cross_size = -1};
};

Topology topology_of(const runtime::Engine& engine);

struct Inherited {
  Topology topology;
  std::map<int32_t, std::vector<Rank>> sets;  // by id; with the world
  std::string description;                    // rueda_describe, without what only the engine can tell
};

inline constexpr const char* kForkedSentence =
    "This process was forked from one that had initialized rueda, and the engine does not survive a fork; "
    "start processes that use collectives with the \"spawn\" method.";

// From now on children of fork() are told what is known at the fork; null: there is no engine. Once, before
// there is one.
void watch_forks(std::unique_ptr<Inherited> (*what_is_known)());
// Whether this process was forked after watch_forks(). It must not take a lock that another thread may have
// held at the fork.
bool is_forked_child();
// What the parent of a forked child knew. Null in other processes, if the parent had no engine, and after
// forget_inherited().
const Inherited* inherited();
void forget_inherited();

}  // namespace rueda::capi
