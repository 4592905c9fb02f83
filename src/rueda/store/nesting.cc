#include "rueda/store/nesting.h"

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

}  // namespace

bool is_rank_of_rueda_run(const GetEnv& get_env) {
  const Environment env(get_env);
  return env.has("RUEDA_RANK") && env.text("RUEDA_STORE_SERVED") == "1";
}

GetEnv without_launcher(const GetEnv& get_env, const std::string& launcher) {
  return [get_env, launcher](const char* name) -> const char* {
    return is_of_launcher(name, launcher) ? nullptr : get_env(name);
  };
}

bool has_launched_ranks(const World& world) {
  constexpr std::array<std::string_view, 8> kStartRanks = {"torchrun", "openmpi", "mpich", "mvapich2",
                                                           "pals",     "flux",    "jsm",   "slurm"};
  return world.size > 1 && std::ranges::find(kStartRanks, world.launcher) != kStartRanks.end();
}

std::string describe_nesting(const World& inner, const World& outer) {
  return "launchers are nested: ranks are those of the inner one, " + rank_in(inner) + ", and not of " +
         rank_in(outer) + " around it";
}

}  // namespace rueda::store
