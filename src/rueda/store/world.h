// Which rank am I, of how many, and where do we meet? Reads the environment of whichever launcher started
// this process, innermost first, and says what it found and why. Detection is pure: it takes the environment
// as a function; opening the rendezvous is the effect.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/store/store.h"

namespace rueda::store {

using GetEnv = std::function<const char*(const char*)>;

struct World {
  Rank rank = 0;
  Rank size = 1;
  Rank local_rank = 0;  // -1: not told; derived from host keys after the ranks have met
  Rank local_size = 1;  // -1 likewise
  std::string
      launcher;  // "rueda", "horovodrun", "torchrun", "openmpi", "mpich", "pmix", "slurm", "single", …
  std::string reason;   // "RUEDA_RANK and RUEDA_SIZE are set"
  std::string warning;  // "inside a Slurm allocation for 4 tasks but not started by srun; …", else empty
  std::string job;      // public job id, equal on all ranks, ≤ 64 bytes
  std::string host;     // name of this host for messages (RUEDA_HOSTNAME, HOROVOD_HOSTNAME or gethostname)

  // How to meet: exactly one of these kinds.
  enum class Meeting { kNone, kUrl, kSeed, kPmi, kPmix };
  Meeting meeting = Meeting::kNone;
  std::string url;               // kUrl: file:///dir or tcp://host:port
  bool is_store_served = false;  // kUrl tcp: true when a launcher serves it; else rank 0 does
  std::string seed_host;    // kSeed: rank 0's host; it serves on the first free port derived from the job id
  std::string secret_file;  // RUEDA_SECRET_FILE, may be empty
};

// The first match of the documented order wins. Contradictory or unparsable variables are kInvalidArgument,
// naming them; only one of a pair present likewise.
Result<World> detect_world(const GetEnv& get_env);

// Everything that must stay alive while the job runs.
struct Rendezvous {
  std::unique_ptr<StoreServer> server;  // only where this process serves
  std::unique_ptr<Store> store;         // null for a world of one
  Secret secret;
};
// interface: Config::interface. release: version text. The secret comes from secret_file, from the launcher's
// private key-value space (PMI, PMIx) or from a per-user key file (0600), in this order.
Result<Rendezvous> open_rendezvous(const World& world, const std::string& interface,
                                   const std::string& release, Deadline deadline);

// Addresses of this machine a peer may be told: the interface or address asked for, else loopback when every
// rank is local, else the address the kernel would use to reach `towards`.
Result<std::string> choose_address(const std::string& interface, const std::string& towards);

}  // namespace rueda::store
