// What the C ABI says about the place of this process among the ranks. A forked child has no engine; it
// answers what its parent knew at the fork.
#include <algorithm>
#include <memory>
#include <vector>

#include "rueda/capi/forks.h"
#include "rueda/capi/state.h"
#include "rueda/rueda.h"

namespace {

using rueda::Rank;
using rueda::capi::Topology;
using rueda::runtime::Engine;
namespace capi = rueda::capi;

constexpr int kUnknownSet = -1, kNotInitialized = -2;

Topology topology() {
  if (const capi::Inherited* known = capi::inherited()) return known->topology;
  const std::shared_ptr<Engine> engine = capi::engine();
  return engine ? capi::topology_of(*engine) : Topology{};
}

int copy_out(const std::vector<int32_t>& values, int32_t* out, int32_t capacity) {
  if (out != nullptr && capacity >= static_cast<int32_t>(values.size())) {
    std::copy(values.begin(), values.end(), out);
  }
  return static_cast<int>(values.size());
}

}  // namespace

extern "C" {

int rueda_is_initialized(void) { return topology().rank >= 0 ? 1 : 0; }

int rueda_rank(void) { return topology().rank; }
int rueda_size(void) { return topology().size; }
int rueda_local_rank(void) { return topology().place.local_rank; }
int rueda_local_size(void) { return topology().place.local_size; }
int rueda_cross_rank(void) { return topology().place.cross_rank; }
int rueda_cross_size(void) { return topology().place.cross_size; }

int rueda_is_homogeneous(void) {
  const Topology known = topology();
  if (known.rank < 0) return -1;
  return known.place.is_homogeneous ? 1 : 0;
}

int64_t rueda_epoch(void) { return topology().epoch; }

int rueda_process_set_ids(int32_t* ids, int32_t capacity) {
  if (const capi::Inherited* known = capi::inherited()) {
    std::vector<int32_t> all;
    for (const auto& [id, members] : known->sets) all.push_back(id);
    return copy_out(all, ids, capacity);
  }
  const std::shared_ptr<Engine> engine = capi::engine();
  return engine ? copy_out(engine->groups().ids(), ids, capacity) : -1;
}

int rueda_process_set_ranks(int32_t id, int32_t* ranks, int32_t capacity) {
  if (const capi::Inherited* known = capi::inherited()) {
    const auto set = known->sets.find(id);
    return set != known->sets.end() ? copy_out(set->second, ranks, capacity) : kUnknownSet;
  }
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return kNotInitialized;
  const auto group = engine->groups().find(id);
  return group ? copy_out(group->members, ranks, capacity) : kUnknownSet;
}

}  // extern "C"
