#include "launch/slurm_allocation.h"

#include <fmt/format.h>

#include <numeric>

#include "rueda/store/environment.h"
#include "rueda/store/slurm.h"

namespace rueda::launch {
namespace {

// A list with one number for each node, such as "4(x2),1". Empty if the variable is not set.
Result<std::vector<Rank>> per_node(const store::Environment& env, const char* name, size_t nodes) {
  const std::string text = env.text(name);
  if (text.empty()) return std::vector<Rank>();
  Result<std::vector<Rank>> numbers = store::expand_tasks_per_node(text);
  if (!numbers.is_ok()) return numbers;
  if (numbers.value().size() == nodes) return numbers;
  return Status(
      Code::kInvalidArgument,
      fmt::format("{}={} does not fit the {} nodes of SLURM_JOB_NODELIST={}; name the hosts with -H", name,
                  text, nodes, env.text("SLURM_JOB_NODELIST")));
}

}  // namespace

Result<std::vector<SlurmNode>> read_slurm_allocation(const store::GetEnv& get_env) {
  const store::Environment env(get_env);
  const std::string steps_tasks = env.text("SLURM_STEP_NUM_TASKS");
  const bool is_task = env.has("SLURM_STEP_ID") && !steps_tasks.empty() && steps_tasks != "1";
  if (!env.has("SLURM_JOB_ID") || !env.has("SLURM_JOB_NODELIST") || is_task) return std::vector<SlurmNode>();
  const auto names = store::expand_node_list(env.text("SLURM_JOB_NODELIST"));
  if (!names.is_ok()) return names.status();
  const auto tasks = per_node(env, "SLURM_TASKS_PER_NODE", names.value().size());
  if (!tasks.is_ok()) return tasks.status();
  const auto cpus = per_node(env, "SLURM_JOB_CPUS_PER_NODE", names.value().size());
  if (!cpus.is_ok()) return cpus.status();
  std::vector<SlurmNode> nodes;
  for (size_t i = 0; i < names.value().size(); ++i) {
    SlurmNode& node = nodes.emplace_back(SlurmNode{.name = names.value()[i]});
    if (!tasks.value().empty()) node.tasks = tasks.value()[i];
    node.cpus = cpus.value().empty() ? node.tasks : cpus.value()[i];
  }
  return nodes;
}

std::vector<HostSlots> slots_of(std::span<const SlurmNode> nodes, int size) {
  const int tasks = std::accumulate(nodes.begin(), nodes.end(), 0,
                                    [](int sum, const SlurmNode& node) { return sum + node.tasks; });
  std::vector<HostSlots> hosts;
  for (const SlurmNode& node : nodes)
    hosts.push_back({node.name, size > tasks ? std::max(node.tasks, node.cpus) : node.tasks});
  return hosts;
}

}  // namespace rueda::launch
