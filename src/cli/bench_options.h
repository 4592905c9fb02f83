// From the command line of `rueda bench` to values.
#pragma once

#include <string>
#include <vector>

#include "bench/request.h"
#include "rueda/base/status.h"

namespace rueda::cli {

struct BenchRequest {
  bench::Request request;
  std::string text;  // not empty: print this and exit with 0
};

Result<BenchRequest> parse_bench(const std::vector<std::string>& arguments);

}  // namespace rueda::cli
