// The options of `rueda run` for jobs whose processes come and go.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/job_options.h"
#include "rueda/base/status.h"

namespace CLI {
class App;
}

namespace rueda::cli {

// As they were given.
struct ElasticWords {
  std::optional<int> min_np, max_np, spares, slots, reset_limit;
  std::optional<double> timeout_s;
  std::optional<std::string> script, accept_agents, secret_file;
  [[nodiscard]] bool makes_elastic() const { return min_np || script || accept_agents; }
};
void add_elastic_options(CLI::App& app, ElasticWords& words);
// Fills in options.elastic. options.size and the hosts are known. are_hosts_named: otherwise those of agents
// that join are used. without_effect: sentences for the user.
struct ElasticPlace {
  bool is_mpi = false, are_hosts_named = false;
};
Status set_elastic(const ElasticWords& words, ElasticPlace place, launch::RunOptions& options,
                   std::vector<std::string>& without_effect);

}  // namespace rueda::cli
