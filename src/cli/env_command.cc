// `rueda env --explain`: which world a rank that is started here and now would find, and why.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "cli/commands.h"
#include "rueda/base/config_table.h"
#include "rueda/store/world.h"

namespace rueda::cli {
namespace {

std::string_view name_of(store::World::Method method) {
  switch (method) {
    case store::World::Method::kNone:
      return "no other rank";
    case store::World::Method::kUrl:
      return "the store at";
    case store::World::Method::kSeed:
      return "a store served by rank 0 on host";
    case store::World::Method::kPmi:
      return "the key-value space of PMI";
    case store::World::Method::kPmix:
      return "the key-value space of PMIx";
    case store::World::Method::kGiven:
      return "MPI";
  }
  return "";
}

int explain() {
  const Result<store::World> found = store::detect_own_world();
  if (!found.is_ok()) {
    fmt::print(stderr, "rueda env: {}\n", found.status().why);
    return 1;
  }
  const store::World& world = found.value();
  fmt::print("launcher    {}\nbecause     {}\n", world.launcher, world.reason);
  fmt::print("rank        {} of {}\nlocal rank  {} of {}\nhost        {}\n", world.rank, world.size,
             world.local_rank, world.local_size, world.host);
  fmt::print("meets at    {} {}\n", name_of(world.method),
             world.method == store::World::Method::kSeed ? world.seed_host : world.url);
  if (!world.warning.empty()) fmt::print("warning     {}\n", world.warning);
  return 0;
}

}  // namespace

int env_command(const Arguments& arguments) {
  if (arguments == Arguments{"--explain"}) return explain();
  const auto get_env = [](const char* name) { return static_cast<const char*>(getenv(name)); };
  const Result<Config> config = parse_config(get_env);
  if (!config.is_ok() || !arguments.empty()) {
    fmt::print(stderr, "rueda env: {}\n",
               config.is_ok() ? "the only option is --explain; without it all settings are listed"
                              : config.status().why);
    return config.is_ok() ? kUsageError : 1;
  }
  std::string text;
  for (const ConfigEntry& entry : config_table())
    text += fmt::format("{:<36} {:<12} {}{}{}\n", entry.env, entry.print(config.value()), entry.sentence,
                        entry.alias.empty() ? "" : " Also ", entry.alias);
  (void)std::fputs(text.c_str(), stdout);  // main() tells a failure; fmt::print would throw
  return 0;
}

}  // namespace rueda::cli
