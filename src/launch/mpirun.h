// `rueda run --mpi`: the ranks are started by the mpirun of an MPI, and their collectives go through that
// MPI. mpirun then does what agents do otherwise: it reaches hosts, forwards output and ends the job. The
// command line is pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/job_options.h"
#include "rueda/base/status.h"

namespace rueda::launch {

struct MpirunOptions {
  std::string program = "mpirun";
  std::vector<std::string> args{};     // further ones of the user's
  std::vector<std::string> binding{};  // instead of ours, which bind nothing
};

enum class MpirunFamily { kOpenMpi4, kOpenMpi5, kMpich, kIntel };

// From what `mpirun --version` prints; empty if it is none that we know.
std::optional<MpirunFamily> mpirun_family(std::string_view version_text);

// Where the ranks run, and what they are given.
struct MpirunJob {
  MpirunFamily family = MpirunFamily::kOpenMpi4;
  bool is_root = false;
  bool is_remote = false;                // some ranks run on other hosts
  std::vector<std::string> variables{};  // names of those that remote ranks are given
};
std::vector<std::string> mpirun_command(const MpirunOptions& mpirun, const RunOptions& options,
                                        const MpirunJob& job);
// What mpirun reads from its environment, besides the ranks' own variables.
Variables mpirun_variables(const RunOptions& options, const MpirunJob& job);

// Sentences about options that have no effect, because mpirun does in its own way what they are about.
std::vector<std::string> ignored_by_mpirun(const RunOptions& options);

// Becomes mpirun: returns only with a failure.
Status become_mpirun(const MpirunOptions& mpirun, const RunOptions& options);

}  // namespace rueda::launch
