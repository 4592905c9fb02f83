// The private key-value space that the process managers of MPI offer to the ranks they start. It carries
// two short values (where our own store is, and its secret), and it tells rank and size if the
// environment does not.
#pragma once

#include <memory>
#include <string>

#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::store {

// The end of the sentence about a space that fails. A rank that calls MPI_Init (RUEDA_CPU_OPERATIONS=mpi)
// uses the same space in another way.
inline constexpr const char* kSpaceAdvice =
    "; set RUEDA_CPU_OPERATIONS alike on all ranks, or RUEDA_STORE to meet without it";

// -1 or empty: the launcher did not say.
struct LauncherFacts {
  Rank rank = -1;
  Rank size = -1;
  Rank local_rank = -1;
  Rank local_size = -1;
  std::string job;
};

class LauncherSpace {
 public:
  virtual ~LauncherSpace() = default;
  [[nodiscard]] virtual const LauncherFacts& facts() const = 0;
  // Words without spaces, up to 255 bytes.
  virtual Status put(const std::string& key, const std::string& value, Deadline deadline) = 0;
  // Every rank calls it. Afterwards all ranks see what was put before.
  virtual Status fence(Deadline deadline) = 0;
  virtual Result<std::string> get(const std::string& key, Rank from, Deadline deadline) = 0;
  // Ends the use of the space; nothing else may be called after it.
  virtual Status finish(Deadline deadline) = 0;
};

// PMI-1 over PMI_FD or PMI_PORT, as MPICH, Intel MPI and srun --mpi=pmi2 speak it. Once per process.
// is_shared: MPI of this process has begun to use PMI_FD and will use it again; it is left as it is.
Result<std::unique_ptr<LauncherSpace>> open_pmi_space(Deadline deadline, bool is_shared = false);
// PMIx through libpmix.so.2. kUnavailable: the library or the server is missing. Once per process.
Result<std::unique_ptr<LauncherSpace>> open_pmix_space();

}  // namespace rueda::store
