// Launchers inside launchers, as `mpirun -np 2 torchrun …`: the innermost gives the ranks, and rank 0 says
// so.
#include "rueda/store/detect_one.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "rueda/store/environment.h"
#include "rueda/store/innermost.h"

namespace rueda::store {
namespace {

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

std::string rank_in(const World& world) {
  const std::string name = world.launcher == "rueda" ? "rueda run" : world.launcher;
  if (world.rank < 0) return name;
  const std::string size = world.size < 0 ? "" : " of " + std::to_string(world.size);
  return name + " (rank " + std::to_string(world.rank) + size + ")";
}

GetEnv without_place_by_rueda(const GetEnv& get_env) {
  return [get_env](const char* name) { return is_place_by_rueda(name) ? nullptr : get_env(name); };
}

// Whether this is a rank that a launcher has started, and not one of variables in the environment of a host,
// a pod or a batch job. Of a world of one, only the processes around this one can tell.
bool is_launched(const World& world, const GetEnv& get_env, const Ancestry& ancestry) {
  const std::string_view family = family_of(world.launcher);
  if (family.empty()) return false;
  return world.size > 1 || (!ancestry.empty() && is_started_by(family, get_env, ancestry));
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

// Hydra tells the name of its job only through its space, and a program between it and the rank may have
// closed that. Ranks of one host have one proxy of Hydra above them, and other jobs have others.
World with_name(World world, const GetEnv& get_env, const Ancestry& ancestry) {
  const bool is_nameless = world.method == World::Method::kPmi && world.job == world.launcher + "-";
  const Process* starter = starter_of(family_of(world.launcher), get_env, ancestry);
  if (is_nameless && starter != nullptr && world.size > 1 && world.local_size == world.size)
    world.job += starter->identity;
  return world;
}

// mpiexec inside mpiexec hides the variables of the outer one from its ranks, but has them itself. Empty:
// none.
std::optional<World> same_launcher_around(const World& world, const GetEnv& get_env,
                                          const Ancestry& ancestry) {
  const std::string_view family = family_of(world.launcher);
  const Process* starter = starter_of(family, get_env, ancestry);
  if (starter == nullptr || !starter->variables || world.launcher == "slurm") return std::nullopt;
  const Result<World> outer = detect_one([starter](const char* name) -> const char* {
    const auto found = starter->variables->find(name);
    return found == starter->variables->end() ? nullptr : found->second.c_str();
  });
  const bool is_rank = outer.is_ok() && outer.value().size > 1 && family_of(outer.value().launcher) == family;
  return is_rank ? std::optional<World>(outer.value()) : std::nullopt;
}

// Without `rueda run` and variables set by hand.
Result<World> detect_launcher(const GetEnv& get_env, const Ancestry& ancestry) {
  Layers layers = separate_launchers(get_env, ancestry);
  Result<World> found = detect_one(without_families(get_env, layers.outer));
  if (!found.is_ok() || !is_launched(found.value(), get_env, ancestry)) return found;
  found = with_name(std::move(found).value(), get_env, ancestry);
  if (layers.inner.empty()) layers.inner = {family_of(found.value().launcher)};
  const GetEnv outside = without_families(get_env, layers.inner);
  const Result<World> outer = layers.outer.empty() ? detect_one(outside) : detect_launcher(outside, ancestry);
  // A step of Slurm around a launcher is the usual way to start its daemons.
  const bool is_nested = outer.is_ok() && is_launched(outer.value(), outside, ancestry) &&
                         outer.value().launcher != "slurm" &&
                         outer.value().launcher != found.value().launcher;
  if (is_nested) return with_nesting(std::move(found).value(), outer.value());
  const std::optional<World> same = same_launcher_around(found.value(), get_env, ancestry);
  return same ? with_nesting(std::move(found).value(), *same) : std::move(found);
}

}  // namespace

// Variables that were set by hand do not name a store that is served.
bool is_below_rueda_run(const GetEnv& get_env) {
  const Environment env(get_env);
  return env.has("RUEDA_RANK") && env.text("RUEDA_STORE_SERVED") == "1";
}

Result<World> detect_world(const GetEnv& get_env, const Ancestry& ancestry) {
  // `rueda run` gives its ranks no place of another launcher's. So a launcher that shows beside it was
  // started by one of its ranks, and is the inner one. Variables that were set by hand count as innermost
  // instead.
  if (is_below_rueda_run(get_env)) {
    const Result<World> found = detect_one(get_env);
    if (!found.is_ok()) return found;
    const GetEnv outside = without_place_by_rueda(get_env);
    const Result<World> inner = detect_launcher(outside, ancestry);
    const bool is_nested = inner.is_ok() && is_launched(inner.value(), outside, ancestry);
    return is_nested ? with_nesting(inner.value(), found.value()) : found;
  }
  const Environment env(get_env);
  for (const char* by_hand : {"RUEDA_RANK", "RUEDA_SIZE", "HOROVOD_RANK", "HOROVOD_SIZE"})
    if (env.has(by_hand)) return detect_one(get_env);
  return detect_launcher(get_env, ancestry);
}

bool is_one_of_several(const GetEnv& get_env) {
  GetEnv rest = get_env;
  while (true) {
    const Result<World> world = detect_one(rest);
    if (!world.is_ok()) return false;
    if (world.value().size > 1) return true;
    const std::string_view family = family_of(world.value().launcher);
    if (world.value().launcher == "rueda")
      rest = without_place_by_rueda(rest);
    else if (!family.empty())
      rest = without_families(rest, {family});  // so it is not found again
    else
      return false;
  }
}

Result<World> detect_own_world() {
  return detect_world([](const char* name) { return static_cast<const char*>(getenv(name)); },
                      read_ancestry());
}

}  // namespace rueda::store
