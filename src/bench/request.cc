#include "bench/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace rueda::bench {

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
            jobs.push_back({.ranks = ranks,
                            .transport = transport,
                            .mode = mode,
                            .strategy = strategy,
                            .model = model,
                            .report = "",
                            .namespaces = {},
                            .is_one_machine = true});
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
  for (const char* key : {"transport", "mode", "strategy", "model", "report"})
    if (!root.contains(key) || !root[key].is_string()) return malformed;
  const auto is_text = [](const nlohmann::json& entry) { return entry.is_string(); };
  if (!root.contains("ranks") || !root["ranks"].is_number_integer() || !root.contains("one_machine") ||
      !root["one_machine"].is_boolean() || !root.contains("namespaces") || !root["namespaces"].is_array() ||
      !std::all_of(root["namespaces"].begin(), root["namespaces"].end(), is_text))
    return malformed;
  return Job{.ranks = root["ranks"],
             .transport = root["transport"],
             .mode = root["mode"],
             .strategy = root["strategy"],
             .model = root["model"],
             .report = root["report"],
             .namespaces = root["namespaces"],
             .is_one_machine = root["one_machine"]};
}

}  // namespace rueda::bench
