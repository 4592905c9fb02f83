// Which MPI library the ranks of this machine would use: a program as it is, and those of `rueda run --mpi`,
// which an mpirun starts. The two differ where several MPIs are installed.
#pragma once

#include <optional>
#include <string>

#include "doctor/report.h"

namespace rueda::doctor {

// What librueda answered: JSON with "library" and "file", or with "problem". Empty: it gave no answer.
using MpiAnswer = std::string;

struct MpiOfRun {
  std::string mpirun{};  // its path
  std::string output{};  // of `rueda run --mpi -np 1 rueda doctor --mpi-library`
  bool is_in_time = true;
};

// Pure. is_wanted: RUEDA_CPU_OPERATIONS=mpi is set. run: not there without an mpirun, or inside a job.
void add_mpi(Section& section, const MpiAnswer& here, bool is_wanted, const std::optional<MpiOfRun>& run);

// The library that this process would use with RUEDA_CPU_OPERATIONS=mpi. It is asked as a rank asks it.
MpiAnswer ask_mpi(const std::string& own_path);

void examine_mpi(Section& section, const std::string& own_path);

}  // namespace rueda::doctor
