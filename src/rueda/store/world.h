// The rank of this process, the size of its world, and where the ranks meet. All of it comes from the
// environment that the innermost launcher of this process has set, together with the reason for the choice.
// Detection is pure: it takes the environment as a function, and those of the processes above as values.
// Opening the rendezvous is an effect.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rueda/base/status.h"
#include "rueda/base/types.h"
#include "rueda/store/ancestry.h"
#include "rueda/store/file_run.h"
#include "rueda/store/store.h"

namespace rueda::store {

using GetEnv = std::function<const char*(const char*)>;

class LauncherSpace;  // the launcher's own key-value space (PMI, PMIx), see launcher_space.h

struct World {
  Rank rank = 0;         // -1: only the launcher knows it; complete_world() asks
  Rank size = 1;         // -1: the same
  Rank local_rank = 0;   // -1: unknown; derived from host keys after the ranks have met
  Rank local_size = 1;   // -1: the same
  std::string launcher;  // "rueda", "torchrun", "openmpi", "mpich", "slurm", "environment", "single", …
  std::string reason;    // "RUEDA_RANK and RUEDA_SIZE are set"
  std::string warning;   // "inside a Slurm allocation for 4 tasks but not started by srun; …", or empty
  std::string job;       // public job id, equal on all ranks, ≤ 64 bytes
  std::string host;      // name of this host for messages (RUEDA_HOSTNAME, HOROVOD_HOSTNAME or gethostname)

  // Of an elastic job: the view to which this process belongs; 0: it has not joined one yet.
  bool is_elastic = false;
  int64_t view = 0;

  // The rendezvous method: exactly one of these.
  enum class Method { kNone, kUrl, kSeed, kPmi, kPmix, kGiven };
  Method method = Method::kNone;
  std::string url;               // kUrl: file:///dir or tcp://host:port
  bool is_store_served = false;  // kUrl tcp: true = a launcher serves it; false = rank 0 does
  std::string seed_host;  // kSeed: rank 0's host; it serves on the first free port derived from the job id.
                          // kPmix: the same as a second choice, where libpmix cannot be used; may be empty
  std::string seed_variable;  // what named seed_host, for messages; may be empty
  std::string seed_fallback;  // used if the name seed_host cannot be resolved; may be empty
  std::string secret_file;    // RUEDA_SECRET_FILE, may be empty
  bool is_in_pod = false;     // a container of Kubernetes
  // kPmi: MPI of this process uses the launcher's space too, and goes on after us.
  bool is_space_shared = false;
  // Set by complete_world() after it asked the launcher. kGiven: set by whoever made this world.
  std::shared_ptr<LauncherSpace> space;
};

// The innermost launcher gives the ranks. ancestry: read_ancestry(), which tells the innermost; without it,
// and where it does not tell, the first match in the documented order wins. Fails with kInvalidArgument,
// naming the variables, if they contradict each other, cannot be parsed, or if one of a pair is missing.
Result<World> detect_world(const GetEnv& get_env, const Ancestry& ancestry = {});
// Whether a launcher around this process, the innermost or any other, has started several processes like it.
bool is_one_of_several(const GetEnv& get_env);
// Whether this process is a rank of `rueda run`, or was started by one, through other launchers or not.
bool is_below_rueda_run(const GetEnv& get_env);
// The world of this process: from its environment, and from the processes above it.
Result<World> detect_own_world();

// Asks the launcher for what its environment does not say: rank and size under `mpiexec -pmi-port` and PMIx,
// the job id under Hydra. Returns other worlds unchanged. A launcher may be asked only once, so call this
// once per process, between detect_world() and open_rendezvous(), and keep the answer for every later init.
Result<World> complete_world(World world, Deadline deadline);

// The host where the ranks meet: an address that this host can reach can be reached by the ranks, too. "" =
// unknown. Asks the resolver of the system if a launcher named two hosts.
std::string rendezvous_host(const World& world);

// Everything that must stay alive while the job runs.
struct Rendezvous {
  std::unique_ptr<StoreServer> server;  // only where this process serves
  std::unique_ptr<Store> store;         // null in a single-process job
  Secret secret;
  FileLease lease;           // kUrl file, rank 0: keeps the directory of this run as long as the job runs
  std::string run_dir = {};  // kUrl file: that directory
};
// Open it once per process and keep it for every later init: the launcher's space can be used only once, and
// a server that stays up cannot be mistaken for that of an earlier init. interface: Config::interface.
// release: the version. The secret comes from secret_file, from the launcher's private key-value space (PMI,
// PMIx) or from the key file of the user (0600), in this order.
Result<Rendezvous> open_rendezvous(const World& world, const std::string& interface,
                                   const std::string& release, Deadline deadline,
                                   const Interrupted& is_interrupted = {});

// The address of this machine that peers are told: the requested interface or address, otherwise loopback if
// every rank is local, otherwise the address that the kernel would use to reach `towards`.
Result<std::string> choose_address(const std::string& interface, const std::string& towards);

}  // namespace rueda::store
