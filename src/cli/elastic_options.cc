#include "cli/elastic_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iterator>

#include "rueda/base/limits.h"

namespace rueda::cli {

void add_elastic_options(CLI::App& app, ElasticWords& words) {
  app.add_option("--min-np,--min-num-proc", words.min_np,
                 "the job goes on while so many processes are left: it is elastic (docs/elastic.md)");
  app.add_option("--max-np,--max-num-proc", words.max_np, "elastic: never more processes than this");
  app.add_option(
      "--host-discovery-script", words.script,
      "elastic: a program that prints the hosts that there are, one a line, as host:slots or host");
  app.add_option("--slots,--slots-per-host", words.slots,
                 "elastic: slots of a host printed without a number");
  app.add_option("--spares", words.spares, "elastic: processes that wait, ready to replace others (0)");
  app.add_option("--reset-limit", words.reset_limit,
                 "elastic: end the job instead of more changes than this");
  app.add_option("--accept-agents", words.accept_agents,
                 "elastic: listen at this address and port (10.0.0.1:5000; 5000; 0: any port) for hosts that "
                 "join by rueda agent --join");
  app.add_option("--secret-file", words.secret_file,
                 "elastic: the secret that these agents must know; written if the file does not exist");
  app.add_option("--elastic-timeout", words.timeout_s, "elastic: seconds to wait for enough processes (600)");
}

namespace {

Status out_of_range(const char* name, int value, int least, int most) {
  return {Code::kInvalidArgument,
          fmt::format("{} {} is refused: it must be a whole number from {} to {}", name, value, least, most)};
}

Status check(const char* name, const std::optional<int>& value, int least, int most) {
  if (!value || (*value >= least && *value <= most)) return Status::ok();
  return out_of_range(name, *value, least, most);
}

// What a job of fixed size cannot obey. horovodrun ignores it, too.
std::vector<std::string> without_min_np(const ElasticWords& words) {
  std::vector<std::string> sentences;
  const std::pair<const char*, bool> given[] = {{"--max-np", words.max_np.has_value()},
                                                {"--spares", words.spares.has_value()},
                                                {"--slots", words.slots.has_value()},
                                                {"--reset-limit", words.reset_limit.has_value()},
                                                {"--secret-file", words.secret_file.has_value()},
                                                {"--elastic-timeout", words.timeout_s.has_value()}};
  for (const auto& [name, is_given] : given)
    if (is_given)
      sentences.push_back(fmt::format(
          "{} has no effect: rueda run starts a fixed number of processes unless --min-np is given", name));
  return sentences;
}

}  // namespace

Status set_elastic(const ElasticWords& words, ElasticPlace place, launch::RunOptions& options,
                   std::vector<std::string>& without_effect) {
  if (!words.makes_elastic()) {
    std::ranges::move(without_min_np(words), std::back_inserter(without_effect));
    return Status::ok();
  }
  const char* const name = words.min_np   ? "--min-np"
                           : words.script ? "--host-discovery-script"
                                          : "--accept-agents";
  if (words.accept_agents && !words.secret_file)
    return {
        Code::kInvalidArgument,
        "--accept-agents needs --secret-file: agents prove that they know the secret in this file, which is "
        "written if it does not exist"};
  if (place.is_mpi)
    return {
        Code::kUnsupported,
        fmt::format("{} does not go with --mpi: MPI ends all ranks when one is lost; leave --mpi out", name)};
  if (options.max_restarts > 0)
    return {Code::kUnsupported,
            fmt::format("{} does not go with --max-restarts: an elastic job replaces single ranks", name)};
  if (Status s = check("--min-np", words.min_np, 1, options.size); !s.is_ok()) return s;
  if (Status s = check("--max-np", words.max_np, options.size, kMaxRanks); !s.is_ok()) return s;
  if (Status s = check("--spares", words.spares, 0, kMaxRanks); !s.is_ok()) return s;
  if (Status s = check("--slots", words.slots, 1, kMaxRanks); !s.is_ok()) return s;
  if (Status s = check("--reset-limit", words.reset_limit, 0, 1'000'000'000); !s.is_ok()) return s;
  const double timeout = words.timeout_s.value_or(600);
  if (!std::isfinite(timeout) || timeout <= 0)
    return {Code::kInvalidArgument,
            fmt::format("--elastic-timeout {} is refused: it must be a number of seconds above 0", timeout)};
  options.elastic = {.least = words.min_np.value_or(options.size),
                     .most = words.max_np.value_or(words.script || words.accept_agents ? 0 : options.size),
                     .spares = words.spares.value_or(0),
                     .reset_limit = words.reset_limit.value_or(-1),
                     .timeout_s = timeout,
                     .discovery_script = words.script.value_or(""),
                     .default_slots = words.slots.value_or(1),
                     .accept_agents = words.accept_agents.value_or(""),
                     .secret_file = words.accept_agents ? *words.secret_file : ""};
  if (words.accept_agents && !words.script && !place.are_hosts_named) options.hosts.clear();
  return Status::ok();
}

}  // namespace rueda::cli
