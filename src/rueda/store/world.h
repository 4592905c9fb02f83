// Which rank am I, of how many, and where do we meet? Reads the environment of whichever launcher started
// this process, innermost first, and says what it found and why. Detection is pure: it takes the environment
// as a function; opening the rendezvous is the effect.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/store/file_run.h"
#include "rueda/store/store.h"

namespace rueda::store {

using GetEnv = std::function<const char*(const char*)>;

class LauncherSpace;  // the launcher's own key-value space (PMI, PMIx), see launcher_space.h

struct World {
  Rank rank = 0;         // -1: only the launcher knows, complete_world() asks it
  Rank size = 1;         // -1 likewise
  Rank local_rank = 0;   // -1: not told; derived from host keys after the ranks have met
  Rank local_size = 1;   // -1 likewise
  std::string launcher;  // "rueda", "torchrun", "openmpi", "mpich", "slurm", "environment", "single", …
  std::string reason;    // "RUEDA_RANK and RUEDA_SIZE are set"
  std::string warning;   // "inside a Slurm allocation for 4 tasks but not started by srun; …", else empty
  std::string job;       // public job id, equal on all ranks, ≤ 64 bytes
  std::string host;      // name of this host for messages (RUEDA_HOSTNAME, HOROVOD_HOSTNAME or gethostname)

  // How to meet: exactly one of these kinds.
  enum class Meeting { kNone, kUrl, kSeed, kPmi, kPmix };
  Meeting meeting = Meeting::kNone;
  std::string url;               // kUrl: file:///dir or tcp://host:port
  bool is_store_served = false;  // kUrl tcp: true when a launcher serves it; else rank 0 does
  std::string seed_host;  // kSeed: rank 0's host; it serves on the first free port derived from the job id.
                          // kPmix: the same as a second choice, where libpmix cannot be used; may be empty
  std::string seed_fallback;             // used in its place where its name cannot be resolved; may be empty
  std::string secret_file;               // RUEDA_SECRET_FILE, may be empty
  std::shared_ptr<LauncherSpace> space;  // set by complete_world() once the launcher was asked
};

// The first match of the documented order wins. Contradictory or unparsable variables are kInvalidArgument,
// naming them; only one of a pair present likewise.
Result<World> detect_world(const GetEnv& get_env);

// Asks the launcher for what its environment does not say: rank and size under `mpiexec -pmi-port` and PMIx,
// a job id under Hydra. Returns other worlds as they are. Call it once per process, between detect_world()
// and open_rendezvous(), and keep the answer for every later init: a launcher may be asked only once.
Result<World> complete_world(World world, Deadline deadline);

// The machine where the ranks meet: whoever can be reached from there can be reached by the ranks. "" = not
// told. Asks the system's resolver where a launcher named two hosts.
std::string meeting_host(const World& world);

// Everything that must stay alive while the job runs.
struct Rendezvous {
  std::unique_ptr<StoreServer> server;  // only where this process serves
  std::unique_ptr<Store> store;         // null for a world of one
  Secret secret;
  FileLease lease;  // kUrl file, rank 0: keeps the directory of this run for as long as the job lives
};
// Open it once per process and keep it for every later init (the launcher's space can be used once only; a
// server that stays up cannot be mistaken for that of an earlier init). interface: Config::interface.
// release: version text. The secret comes from secret_file, from the launcher's private key-value space (PMI,
// PMIx) or from a per-user key file (0600), in this order.
Result<Rendezvous> open_rendezvous(const World& world, const std::string& interface,
                                   const std::string& release, Deadline deadline);

// Addresses of this machine a peer may be told: the interface or address asked for, else loopback when every
// rank is local, else the address the kernel would use to reach `towards`.
Result<std::string> choose_address(const std::string& interface, const std::string& towards);

}  // namespace rueda::store
