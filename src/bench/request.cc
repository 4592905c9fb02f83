#include "bench/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace rueda::bench {

namespace {

// The same strategy with each number of servers and each placement; others once.
std::vector<Job> with_servers(const Job& job, const Request& request) {
  if (job.strategy != "parameter-server") return {job};
  std::vector<Job> jobs;
  std::vector<int> seen;  // two ratios may give the same number
  for (const ServerCount& servers : request.servers) {
    if (std::ranges::find(seen, servers.of(job.ranks)) != seen.end()) continue;
    seen.push_back(servers.of(job.ranks));
    for (const std::string& placement : request.placements) {
      Job& one = jobs.emplace_back(job);
      one.servers = servers;
      one.placement = placement;
    }
  }
  return jobs;
}

}  // namespace

std::vector<Job> jobs_of(const Request& request) {
  std::vector<Job> jobs;
  const std::vector<std::string> one = {""};
  std::vector<std::string> models;
  for (const workload::Model& model : request.models) models.push_back(model.name);
  const std::vector<std::string>& modes = request.what == "burst" ? request.modes : one;
  const std::vector<std::string>& strategies = request.what == "replay" ? request.strategies : one;
  for (const std::string& model : models.empty() ? one : models)
    for (const int ranks : request.ranks)
      for (const std::string& transport : request.transports)
        for (const std::string& mode : modes)
          for (const std::string& strategy : strategies)
            std::ranges::move(with_servers({.ranks = ranks,
                                            .transport = transport,
                                            .mode = mode,
                                            .strategy = strategy,
                                            .model = model,
                                            .report = "",
                                            .namespaces = {},
                                            .is_one_machine = true},
                                           request),
                              std::back_inserter(jobs));
  return jobs;
}

Status about_transport(Status failure, const std::string& transport, const std::vector<std::string>& all) {
  constexpr std::string_view kSetting = "RUEDA_TRANSPORTS";
  const size_t named = failure.why.rfind(kSetting);
  if (transport == "auto" || named == std::string::npos) return failure;
  size_t end = std::string::npos;  // before the advice
  for (const std::string_view before : {". ", "; ", ", or "})
    if (const size_t at = failure.why.rfind(before, named); at != std::string::npos)
      end = end == std::string::npos ? at : std::max(end, at);
  if (end != std::string::npos) failure.why.resize(end);
  std::string others;
  for (const std::string& one : all)
    if (one != transport) others += (others.empty() ? "" : ",") + one;
  failure.why +=
      fmt::format(". --transport measures each by itself, and {} cannot be used here; {}.", transport,
                  !others.empty()      ? "leave it out: --transport " + others
                  : transport == "tcp" ? "choose another: --transport auto"
                                       : "choose another: --transport tcp");
  return failure;
}

std::string encode(const Job& job) {
  return nlohmann::json{{"ranks", job.ranks},
                        {"transport", job.transport},
                        {"mode", job.mode},
                        {"strategy", job.strategy},
                        {"servers", {job.servers.servers, job.servers.ranks}},
                        {"placement", job.placement},
                        {"model", job.model},
                        {"report", job.report},
                        {"namespaces", job.namespaces},
                        {"one_machine", job.is_one_machine}}
      .dump();
}

Result<Job> decode_job(const std::string& text) {
  const nlohmann::json root = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Status malformed(Code::kInvalidArgument,
                         "RUEDA_BENCH_JOB is set by rueda bench for its ranks only; "
                         "unset it");
  if (!root.is_object()) return malformed;
  for (const char* key : {"transport", "mode", "strategy", "placement", "model", "report"})
    if (!root.contains(key) || !root[key].is_string()) return malformed;
  const auto is_text = [](const nlohmann::json& entry) { return entry.is_string(); };
  if (!root.contains("ranks") || !root["ranks"].is_number_integer() || !root.contains("one_machine") ||
      !root["one_machine"].is_boolean() || !root.contains("namespaces") || !root["namespaces"].is_array() ||
      !std::all_of(root["namespaces"].begin(), root["namespaces"].end(), is_text))
    return malformed;
  if (!root.contains("servers") || !root["servers"].is_array() || root["servers"].size() != 2 ||
      !root["servers"][0].is_number_integer() || !root["servers"][1].is_number_integer())
    return malformed;
  return Job{.ranks = root["ranks"],
             .transport = root["transport"],
             .mode = root["mode"],
             .strategy = root["strategy"],
             .servers = {.servers = root["servers"][0], .ranks = root["servers"][1]},
             .placement = root["placement"],
             .model = root["model"],
             .report = root["report"],
             .namespaces = root["namespaces"],
             .is_one_machine = root["one_machine"]};
}

}  // namespace rueda::bench
