// Meets the other ranks of whichever launcher started this process, and prints one line:
// who it is, why it thinks so, and whom it met. Exit code 1 if that fails. RUEDA_INTERFACE
// and RUEDA_START_TIMEOUT are honoured.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "rueda/base/config_table.h"
#include "rueda/store/world.h"

namespace {

using rueda::Code;
using rueda::Deadline;
using rueda::Result;
using rueda::Status;
using rueda::store::World;

Status exchange(rueda::store::Store& store, const World& world, Deadline deadline) {
  for (int round = 0; round < 3; ++round) {
    const std::string prefix = "round" + std::to_string(round) + "/";
    Status status =
        store.set(prefix + std::to_string(world.rank), "pid " + std::to_string(getpid()), deadline);
    if (!status.is_ok()) return status;
    for (int peer = 0; peer < world.size; ++peer) {
      const Result<std::string> got = store.get(prefix + std::to_string(peer), deadline);
      if (!got.is_ok()) return got.status();
      if (!got.value().starts_with("pid ")) return {Code::kInternal, "a foreign value: " + got.value()};
    }
  }
  // Rank 0 may serve the store: it leaves last.
  const Result<int64_t> gone = store.add("gone", 1, deadline);
  if (!gone.is_ok()) return gone.status();
  if (gone.value() == world.size) return store.set("all gone", "", deadline);
  return world.rank == 0 ? store.get("all gone", deadline).status() : Status::ok();
}

Status meet(World& world) {
  const Result<rueda::Config> config = rueda::parse_config(std::getenv);
  if (!config.is_ok()) return config.status();
  const auto seconds = static_cast<double>(rueda::kSecond);
  const Deadline deadline =
      Deadline::after(static_cast<rueda::Nanos>(config.value().start_timeout_s * seconds));
  Result<World> found = rueda::store::detect_world(std::getenv);
  if (found.is_ok()) found = complete_world(std::move(found).value(), deadline);
  if (!found.is_ok()) return found.status();
  world = found.value();
  const auto met = rueda::store::open_rendezvous(world, config.value().interface, "probe", deadline);
  if (!met.is_ok()) return met.status();
  return met.value().store == nullptr ? Status::ok() : exchange(*met.value().store, world, deadline);
}

}  // namespace

int main() {
  World world;
  const Status status = meet(world);
  if (!status.is_ok()) {
    std::fprintf(stderr, "rank %d: %s\n", world.rank, status.to_string().c_str());
    return 1;
  }
  constexpr const char* kMethods[] = {"none", "url", "seed", "pmi", "pmix"};
  std::printf("rank %d of %d, local %d of %d, launcher %s (%s), met by %s, job %s%s%s\n", world.rank,
              world.size, world.local_rank, world.local_size, world.launcher.c_str(), world.reason.c_str(),
              kMethods[static_cast<int>(world.method)], world.job.c_str(), world.warning.empty() ? "" : "; ",
              world.warning.c_str());
  return 0;
}
