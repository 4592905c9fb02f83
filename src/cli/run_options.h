// From the command line of `rueda run` to values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/job_options.h"
#include "launch/mpirun.h"
#include "rueda/base/status.h"

namespace rueda::cli {

struct RunRequest {
  launch::RunOptions options;
  std::string text;                               // not empty: print this and exit with 0 (help, version)
  bool is_check_build = false;                    // -cb: as `rueda check-build`
  std::optional<launch::MpirunOptions> mpirun{};  // --mpi: mpirun starts the ranks
  std::vector<std::string> without_effect{};  // sentences about options that were accepted and are ignored
};

// Who is named in what is wrong with the options.
struct Caller {
  std::string_view command = "rueda run";
  std::vector<std::string> options{};  // that it has besides
};

// Options end at the first word that is not an option. From there on everything is the command.
Result<RunRequest> parse_run(const std::vector<std::string>& arguments, const Caller& caller = {});

}  // namespace rueda::cli
