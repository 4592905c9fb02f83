#include <fmt/format.h>

#include <cstdio>

#include "cli/commands.h"
#include "cli/run_options.h"

namespace rueda::cli {

int run_command(const Arguments& arguments) {
  Result<RunRequest> request = parse_run(arguments);
  if (!request.is_ok()) {
    fmt::print(stderr, "rueda run: {}\n", request.status().why);
    return kUsageError;
  }
  if (request.value().is_check_build) return check_build_command({});
  if (!request.value().text.empty()) {
    fmt::print("{}", request.value().text);
    return 0;
  }
  launch::RunOptions options = std::move(request.value().options);
  options.binary = own_path();
  return launch::JobRunner(std::move(options)).run();
}

}  // namespace rueda::cli
