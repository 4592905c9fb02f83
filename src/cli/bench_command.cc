#include <fmt/format.h>

#include <cstdio>

#include "bench/job.h"
#include "cli/bench_options.h"
#include "cli/commands.h"

namespace rueda::cli {

int bench_command(const Arguments& arguments) {
  const Result<BenchRequest> parsed = parse_bench(arguments);
  if (!parsed.is_ok()) {
    fmt::print(stderr, "rueda bench: {}\n", parsed.status().why);
    return kUsageError;
  }
  if (!parsed.value().text.empty()) {
    fmt::print("{}", parsed.value().text);
    return 0;
  }
  return bench::run(parsed.value().request, own_path());
}

}  // namespace rueda::cli
