// Internal to detection: which of several launchers started this process last. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rueda/store/ancestry.h"
#include "rueda/store/world.h"

namespace rueda::store {

// The launchers whose variables a process has, as names of families: torchrun, openmpi, pmi, flux, jsm, pmix,
// slurm. A launcher may set the variables of several: srun --mpi=pmi2 is of pmi and of slurm.
struct Layers {
  std::vector<std::string_view> inner;  // of the innermost launcher; empty: the processes do not tell
  std::vector<std::string_view> outer;  // of all others
};

// The variables of a launcher begin where its process starts another, so the launcher whose variables begin
// nearest to this process is the innermost. Nearest counts what began in the environment of this process
// itself, then what its parent did not have, and so on.
Layers separate_launchers(const GetEnv& get_env, const Ancestry& ancestry);

// Whether a launcher has started this process as a rank of this family. A library of MPI that is initialised
// without a launcher leaves the variables of a world of one rank behind, which is none.
bool is_started_by(std::string_view family, const GetEnv& get_env, const Ancestry& ancestry);

// The process of a launcher that has started this rank of this family. Null if none is known.
const Process* starter_of(std::string_view family, const GetEnv& get_env, const Ancestry& ancestry);

// The family of World::launcher, or empty if that starts no ranks.
std::string_view family_of(std::string_view launcher);

// The environment without what launchers of these families say about a rank.
GetEnv without_families(const GetEnv& get_env, const std::vector<std::string_view>& families);

}  // namespace rueda::store
