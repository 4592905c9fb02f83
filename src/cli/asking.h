// What the commands share that ask running jobs: `rueda status`, `rueda stacks` and `rueda timeline record`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "observe/gather.h"

namespace rueda::cli {

inline constexpr const char* kJobHelp =
    "a job as rueda status names it, or a process: a rank or what started it";

void add_timeout(CLI::App& app, double& timeout_s);
int milliseconds(double seconds);
// Each remark is a line of stderr.
void tell(const char* command, const std::vector<std::string>& remarks);
// About processes that have not answered, and ranks that nobody reaches.
std::vector<std::string> remarks_of(const observe::Found& found);

}  // namespace rueda::cli
