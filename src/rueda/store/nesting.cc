// Launchers inside launchers, as `mpirun -np 2 torchrun …`: which variables belong to the outer one. Pure.
#include "rueda/store/detect_one.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "rueda/store/environment.h"

namespace rueda::store {
namespace {

bool begins_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// The settings of rueda keep their effect in an inner job; the place of a rank does not.
bool is_place_by_rueda(std::string_view name) {
  constexpr std::array<std::string_view, 11> kPlace = {
      "RANK",  "SIZE",         "LOCAL_RANK", "LOCAL_SIZE",  "CROSS_RANK", "CROSS_SIZE",
      "STORE", "STORE_SERVED", "JOB",        "SECRET_FILE", "HOSTNAME"};
  for (const std::string_view prefix : {"RUEDA_", "HOROVOD_"})
    if (name.starts_with(prefix))
      return std::ranges::find(kPlace, name.substr(prefix.size())) != kPlace.end();
  return false;
}

bool is_of_launcher(std::string_view name, const std::string& launcher) {
  if (launcher == "rueda") return is_place_by_rueda(name);
  if (launcher == "torchrun")
    return begins_with_any(name, {"TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  if (launcher == "openmpi") return begins_with_any(name, {"OMPI_COMM_WORLD_", "PMIX_"});
  return false;
}

std::string rank_in(const World& world) {
  const std::string name = world.launcher == "rueda" ? "rueda run" : world.launcher;
  return name + " (rank " + std::to_string(world.rank) + " of " + std::to_string(world.size) + ")";
}

// `rueda run` gives its ranks no place of another launcher's. So a launcher that shows beside it was started
// by one of its ranks, and is the inner one. Variables that were set by hand count as innermost instead.
bool is_rank_of_rueda_run(const GetEnv& get_env) {
  const Environment env(get_env);
  return env.has("RUEDA_RANK") && env.text("RUEDA_STORE_SERVED") == "1";
}

// The environment without what this launcher says about a rank; names as in World::launcher.
GetEnv without_launcher(const GetEnv& get_env, const std::string& launcher) {
  return [get_env, launcher](const char* name) -> const char* {
    return is_of_launcher(name, launcher) ? nullptr : get_env(name);
  };
}

// Whether these are ranks that a launcher has started, and not variables in the environment of a host, a pod
// or a batch job. A library of MPI may leave the variables of a world of one rank behind.
bool has_launched_ranks(const World& world) {
  constexpr std::array<std::string_view, 8> kStartRanks = {"torchrun", "openmpi", "mpich", "mvapich2",
                                                           "pals",     "flux",    "jsm",   "slurm"};
  return world.size > 1 && std::ranges::find(kStartRanks, world.launcher) != kStartRanks.end();
}

std::string describe_nesting(const World& inner, const World& outer) {
  return "launchers are nested: ranks are those of the inner one, " + rank_in(inner) + ", and not of " +
         rank_in(outer) + " around it";
}

// Rank 0 tells, for all.
World with_nesting(World inner, const World& outer) {
  if (inner.rank == 0 && inner.warning.empty()) inner.warning = describe_nesting(inner, outer);
  return inner;
}

}  // namespace

Result<World> detect_world(const GetEnv& get_env) {
  Result<World> found = detect_one(get_env);
  if (!found.is_ok()) return found;
  if (is_rank_of_rueda_run(get_env)) {
    const Result<World> inner = detect_one(without_launcher(get_env, "rueda"));
    if (inner.is_ok() && has_launched_ranks(inner.value())) return with_nesting(inner.value(), found.value());
    return found;
  }
  const Result<World> outer = detect_one(without_launcher(get_env, found.value().launcher));
  // A step of Slurm around a launcher is the usual way to start its daemons.
  const bool is_nested = outer.is_ok() && has_launched_ranks(outer.value()) &&
                         outer.value().launcher != "slurm" && has_launched_ranks(found.value()) &&
                         outer.value().launcher != found.value().launcher;
  return is_nested ? with_nesting(std::move(found).value(), outer.value()) : std::move(found);
}

}  // namespace rueda::store
