#include "observe/fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "observe/view.h"

namespace rueda::observe {
namespace {

using nlohmann::json;

std::string text_of(const json& from, const char* key) {
  const auto found = from.is_object() ? from.find(key) : from.end();
  if (found == from.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  return found->is_number_integer() ? std::to_string(found->get<int64_t>()) : std::string();
}

const json& list(const json& from, const char* key) {
  static const json empty = json::array();
  const auto found = from.is_object() ? from.find(key) : from.end();
  return found != from.end() && found->is_array() ? *found : empty;
}

// No byte offsets where there is a name: they differ between ranks that do the same.
std::string native_frame(const json& frame) {
  const std::string function = text_of(frame, "function"), module = text_of(frame, "module");
  if (!function.empty()) return fmt::format("  {} ({})\n", function, module);
  const auto offset = frame.is_object() ? frame.find("offset") : frame.end();
  const uint64_t at = offset != frame.end() && offset->is_number_unsigned() ? offset->get<uint64_t>() : 0;
  return fmt::format("  {}+{:#x}\n", module, at);
}

std::string stack_text(const json& thread, bool shows_native) {
  std::string out;
  for (const json& frame : list(thread, "python"))
    out += fmt::format("  {} ({}:{})\n", text_of(frame, "function"), text_of(frame, "file"),
                       text_of(frame, "line"));
  if (!shows_native) return out;
  for (const json& frame : list(thread, "native")) out += native_frame(frame);
  if (const std::string why = text_of(thread, "native_missing"); !why.empty())
    out += "  no native stack: " + why + "\n";
  return out;
}

struct Same {
  bool is_main = false;
  std::vector<Rank> ranks;
  size_t threads = 0;
  std::string name;
};

std::string folded_of_job(const std::vector<RankStacks>& all, bool is_native) {
  std::map<std::pair<bool, std::string>, Same> stacks;  // main threads come first
  std::string remarks;
  for (const RankStacks& one : all) {
    if (const std::string why = text_of(one.stacks, "python_missing"); !why.empty())
      remarks += fmt::format("rank {}: no Python stacks: {}\n", one.rank, why);
    for (const json& thread : list(one.stacks, "threads")) {
      const bool is_main = text_of(thread, "tid") == std::to_string(one.pid);
      const bool has_python = !list(thread, "python").empty();
      if (!is_native && !has_python && !is_main) continue;
      const std::string shown = stack_text(thread, is_native || !has_python);
      Same& same = stacks[{!is_main, shown}];
      same.is_main = is_main;
      same.name = text_of(thread, "name");
      ++same.threads;
      if (std::ranges::find(same.ranks, one.rank) == same.ranks.end()) same.ranks.push_back(one.rank);
    }
  }
  // The rarest main thread first: it is the one that hangs elsewhere.
  std::vector<std::pair<Same, std::string>> sorted;
  for (const auto& [key, same] : stacks) sorted.emplace_back(same, key.second);
  std::ranges::stable_sort(
      sorted, {}, [](const auto& one) { return std::pair(!one.first.is_main, one.first.ranks.size()); });
  std::string out;
  for (const auto& [same, shown] : sorted) {
    const std::string which = same.is_main ? "main thread"
                              : same.threads > same.ranks.size()
                                  ? fmt::format("{} threads such as {}", same.threads, same.name)
                                  : "thread " + same.name;
    out += fmt::format("{}rank{} {}: {}\n{}", out.empty() ? "" : "\n", same.ranks.size() == 1 ? "" : "s",
                       ranges(same.ranks), which, shown.empty() ? "  nothing is known\n" : shown);
  }
  return out + remarks;
}

}  // namespace

std::string folded(const std::vector<RankStacks>& all, bool is_native) {
  std::map<std::string, std::vector<RankStacks>> jobs;
  for (const RankStacks& one : all) jobs[one.job].push_back(one);
  if (jobs.size() < 2) return folded_of_job(all, is_native);
  std::string out;
  for (const auto& [job, ranks] : jobs)
    out += fmt::format("{}{}\n{}", out.empty() ? "" : "\n", job.empty() ? "not in a job" : "job " + job,
                       folded_of_job(ranks, is_native));
  return out;
}

std::string stacks_json(const std::vector<RankStacks>& all) {
  nlohmann::ordered_json out;
  out["ranks"] = nlohmann::ordered_json::array();
  for (const RankStacks& one : all) {
    nlohmann::ordered_json rank = {
        {"rank", one.rank}, {"pid", one.pid}, {"job", one.job}, {"host", one.host}};
    for (const auto& [key, value] : one.stacks.items()) rank[key] = value;
    out["ranks"].push_back(std::move(rank));
  }
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace rueda::observe
