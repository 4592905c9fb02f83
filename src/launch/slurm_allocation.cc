#include "launch/slurm_allocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "rueda/store/environment.h"
#include "rueda/store/slurm.h"

namespace rueda::launch {
namespace {

// A list with one number for each node, such as "4(x2),1". Empty if the variable is not set.
Result<std::vector<Rank>> per_node(const store::Environment& env, const std::string& name, size_t nodes,
                                   const std::string& list) {
  const std::string text = env.text(name.c_str());
  if (text.empty()) return std::vector<Rank>();
  Result<std::vector<Rank>> numbers = store::expand_tasks_per_node(text);
  if (!numbers.is_ok()) return numbers;
  if (numbers.value().size() == nodes) return numbers;
  return Status(Code::kInvalidArgument,
                fmt::format("{}={} does not fit the {} nodes of {}={}; name the hosts with -H", name, text,
                            nodes, list, env.text(list.c_str())));
}

// suffix: "" for the whole job, "_HET_GROUP_1" for the second component of a heterogeneous one.
Status add_nodes(const store::Environment& env, const std::string& suffix, int het_group,
                 std::vector<SlurmNode>& nodes) {
  const std::string list = "SLURM_JOB_NODELIST" + suffix;
  const auto names = store::expand_node_list(env.text(list.c_str()));
  if (!names.is_ok()) return names.status();
  const size_t count = names.value().size();
  const auto tasks = per_node(env, "SLURM_TASKS_PER_NODE" + suffix, count, list);
  if (!tasks.is_ok()) return tasks.status();
  const auto cpus = per_node(env, "SLURM_JOB_CPUS_PER_NODE" + suffix, count, list);
  if (!cpus.is_ok()) return cpus.status();
  for (size_t i = 0; i < count; ++i) {
    const int own_tasks = tasks.value().empty() ? 1 : tasks.value()[i];
    // Two components may have the same node. There is one agent for it, in a step of the first of them.
    if (const auto same = std::ranges::find(nodes, names.value()[i], &SlurmNode::name); same != nodes.end())
      same->tasks += own_tasks;
    else
      nodes.push_back({.name = names.value()[i],
                       .tasks = own_tasks,
                       .cpus = cpus.value().empty() ? own_tasks : cpus.value()[i],
                       .het_group = het_group});
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<SlurmNode>> read_slurm_allocation(const store::GetEnv& get_env) {
  const store::Environment env(get_env);
  const std::string steps_tasks = env.text("SLURM_STEP_NUM_TASKS");
  const bool is_task = env.has("SLURM_STEP_ID") && !steps_tasks.empty() && steps_tasks != "1";
  if (!env.has("SLURM_JOB_ID") || is_task) return std::vector<SlurmNode>();
  std::vector<SlurmNode> nodes;
  if (env.has("SLURM_HET_SIZE")) {
    const Result<Rank> size = env.number("SLURM_HET_SIZE");
    if (!size.is_ok()) return size.status();
    for (int group = 0; group < size.value(); ++group)
      if (Status added = add_nodes(env, fmt::format("_HET_GROUP_{}", group), group, nodes); !added.is_ok())
        return added;
    return nodes;
  }
  if (!env.has("SLURM_JOB_NODELIST")) return nodes;
  if (Status added = add_nodes(env, "", -1, nodes); !added.is_ok()) return added;
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
