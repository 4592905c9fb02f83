#include "rueda/store/slurm.h"

#include <algorithm>

namespace rueda::store {
namespace {

Status bad_list(std::string_view text, const std::string& why) {
  return {Code::kInvalidArgument, "the Slurm list '" + std::string(text) + "' cannot be read: " + why};
}

std::optional<uint32_t> digits(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Splits at commas outside brackets.
std::vector<std::string_view> cut(std::string_view text) {
  std::vector<std::string_view> entries;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      entries.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return entries;
}

// "08-10" → 08 09 10. All numbers have the width of the first one.
Result<std::vector<std::string>> expand_range(std::string_view range) {
  const size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  const auto from = digits(first), to = digits(last);
  if (!from || !to || *to < *from || *to - *from >= static_cast<uint32_t>(kMaxRanks))
    return bad_list(range, "it is not a range of numbers");
  std::vector<std::string> numbers;
  for (uint32_t i = *from; i <= *to; ++i) {
    std::string number = std::to_string(i);
    if (number.size() < first.size()) number.insert(0, first.size() - number.size(), '0');
    numbers.push_back(std::move(number));
  }
  return numbers;
}

// One entry between commas, with any number of brackets: "rack[0-1]n[1-2]".
Result<std::vector<std::string>> expand_host(std::string_view text) {
  std::vector<std::string> hosts = {""};
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t open = rest.find('[');
    for (std::string& host : hosts) host += rest.substr(0, open);
    if (open == std::string_view::npos) break;
    const size_t close = rest.find(']', open);
    if (close == std::string_view::npos) return bad_list(text, "a bracket is not closed");
    std::vector<std::string> numbers;
    for (const std::string_view range : cut(rest.substr(open + 1, close - open - 1))) {
      Result<std::vector<std::string>> part = expand_range(range);
      if (!part.is_ok()) return part;
      numbers.insert(numbers.end(), part.value().begin(), part.value().end());
      if (numbers.size() * hosts.size() > static_cast<size_t>(kMaxRanks))
        return bad_list(text, "too many hosts");
    }
    std::vector<std::string> longer;
    for (const std::string& host : hosts)
      for (const std::string& number : numbers) longer.push_back(host + number);
    hosts = std::move(longer);
    rest.remove_prefix(close + 1);
  }
  return hosts;
}

// The number of tasks on this node, or -1 if srun does not say.
Rank local_size_of(const Environment& env) {
  const auto tasks = expand_tasks_per_node(env.text("SLURM_STEP_TASKS_PER_NODE"));
  const auto node = env.number("SLURM_NODEID");
  if (tasks.is_ok() && node.is_ok() && static_cast<size_t>(node.value()) < tasks.value().size())
    return tasks.value()[static_cast<size_t>(node.value())];
  const std::string ids = env.text("SLURM_GTIDS");  // the ranks of this node
  return ids.empty() ? -1 : static_cast<Rank>(std::ranges::count(ids, ',') + 1);
}

}  // namespace

Result<std::vector<std::string>> expand_node_list(std::string_view text) {
  std::vector<std::string> hosts;
  for (const std::string_view entry : cut(text)) {
    if (entry.empty()) return bad_list(text, "an entry is empty");
    Result<std::vector<std::string>> part = expand_host(entry);
    if (!part.is_ok()) return part;
    hosts.insert(hosts.end(), part.value().begin(), part.value().end());
    if (hosts.size() > static_cast<size_t>(kMaxRanks)) return bad_list(text, "too many hosts");
  }
  return hosts;
}

Result<std::vector<Rank>> expand_tasks_per_node(std::string_view text) {
  std::vector<Rank> tasks;
  for (const std::string_view entry : cut(text)) {
    const size_t open = entry.find("(x");
    const auto count = digits(entry.substr(0, open));
    std::optional<uint32_t> times = 1;
    if (open != std::string_view::npos)
      times = entry.ends_with(')') ? digits(entry.substr(open + 2, entry.size() - open - 3)) : std::nullopt;
    constexpr uint32_t kMost = kMaxRanks;
    if (!count || !times || *count > kMost || *times > kMost || tasks.size() + *times > kMost)
      return bad_list(text, "'" + std::string(entry) + "' is not a number of tasks");
    tasks.insert(tasks.end(), *times, static_cast<Rank>(*count));
  }
  return tasks;
}

Result<std::optional<SlurmStep>> read_slurm_step(const Environment& env) {
  if (!env.has("SLURM_STEP_ID") || !env.has("SLURM_STEP_NUM_TASKS")) return std::optional<SlurmStep>();
  SlurmStep step;
  const Result<Rank> rank = env.number("SLURM_PROCID"), size = env.number("SLURM_STEP_NUM_TASKS");
  if (!rank.is_ok()) return rank.status();
  if (!size.is_ok()) return size.status();
  step.rank = rank.value();
  step.size = size.value();
  step.id = env.text("SLURM_JOB_ID") + "." + env.text("SLURM_STEP_ID");
  if (env.text("SLURM_RESTART_COUNT") != "0") step.restarts = env.text("SLURM_RESTART_COUNT");
  step.srun_host = env.text("SLURM_LAUNCH_NODE_IPADDR");
  const Rank local_size = local_size_of(env);
  const Result<Rank> local_rank = env.number("SLURM_LOCALID");
  if (local_rank.is_ok() && local_size > local_rank.value()) {
    step.local_rank = local_rank.value();
    step.local_size = local_size;
  }
  if (env.has("SLURM_STEP_NODELIST")) {
    const auto hosts = expand_node_list(env.text("SLURM_STEP_NODELIST"));
    if (!hosts.is_ok()) return hosts.status();
    step.first_host = hosts.value().front();
  }
  return std::optional<SlurmStep>(step);
}

}  // namespace rueda::store
