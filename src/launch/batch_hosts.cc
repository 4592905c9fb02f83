#include "launch/batch_hosts.h"

#include <fmt/format.h>

#include <sstream>

#include "rueda/store/environment.h"

namespace rueda::launch {
namespace {

Status refused(const std::string& source, const Status& why) {
  return {Code::kInvalidArgument, fmt::format("{}: {} Or name the hosts with -H.", source, why.why)};
}

// A file with one line for each slot: "a", "a", "b". Hosts keep the order of their first lines.
Result<std::vector<HostSlots>> hosts_in_file(const std::string& variable, const std::string& path,
                                             const ReadFile& read_file) {
  const Result<std::string> text = read_file(path);
  if (!text.is_ok()) return refused(variable, text.status());
  Result<std::vector<HostSlots>> hosts = parse_hostfile(text.value(), path);
  return hosts.is_ok() ? hosts : refused(variable, hosts.status());
}

// "a 4 b 2"
Result<std::vector<HostSlots>> hosts_in_pairs(const std::string& variable, const std::string& text) {
  std::istringstream words(text);
  std::string list;
  for (std::string name, slots; words >> name;) {
    const bool has_slots = static_cast<bool>(words >> slots);
    list += fmt::format("{}{}:{}", list.empty() ? "" : ",", name, has_slots ? slots : "missing");
  }
  Result<std::vector<HostSlots>> hosts = parse_hosts(list);
  return hosts.is_ok() ? hosts : refused(variable + "=" + text, hosts.status());
}

Result<std::vector<HostSlots>> lsf_hosts(const store::Environment& env, const ReadFile& read_file) {
  if (env.has("LSB_DJOB_HOSTFILE"))
    return hosts_in_file("LSB_DJOB_HOSTFILE", env.text("LSB_DJOB_HOSTFILE"), read_file);
  if (env.has("LSB_MCPU_HOSTS")) return hosts_in_pairs("LSB_MCPU_HOSTS", env.text("LSB_MCPU_HOSTS"));
  return std::vector<HostSlots>();
}

}  // namespace

Result<BatchHosts> read_batch_hosts(const store::GetEnv& get_env, const ReadFile& read_file) {
  using enum BatchHosts::Scheduler;
  const store::Environment env(get_env);
  BatchHosts found;
  Result<std::vector<HostSlots>> hosts = std::vector<HostSlots>();
  if (env.has("LSB_JOBID")) {
    found.scheduler = kLsf;
    hosts = lsf_hosts(env, read_file);
  } else if (env.has("PBS_JOBID") && env.has("PBS_NODEFILE")) {
    found.scheduler = kPbs;
    hosts = hosts_in_file("PBS_NODEFILE", env.text("PBS_NODEFILE"), read_file);
  }
  if (!hosts.is_ok()) return hosts.status();
  found.hosts = std::move(hosts.value());
  if (found.hosts.empty()) found.scheduler = kNone;
  return found;
}

}  // namespace rueda::launch
