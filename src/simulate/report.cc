// The two forms of a report.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/sizes.h"
#include "simulate/simulate.h"

namespace rueda::simulate {
namespace {

using Ordered = nlohmann::ordered_json;

std::string name_of(Detail detail) { return detail == Detail::kMessage ? "message" : "call"; }

std::string kinds_of(const std::map<std::string, int64_t>& algorithms) {
  int64_t most = 0;
  std::string name;
  for (const auto& [algorithm, calls] : algorithms)
    if (calls > most) {
      most = calls;
      name = algorithm;
    }
  return algorithms.size() > 1 ? name + " and others" : name;
}

// With what was asked to be otherwise.
Cluster as_asked(const Request& request) {
  Changes changes = request.changes;
  changes.ranks.reset();  // of each prediction
  Result<Cluster> changed = change(request.cluster, changes);
  return changed.is_ok() ? std::move(changed).value() : request.cluster;
}

Ordered tiers_of(const Cluster& cluster) {
  Ordered tiers = Ordered::array();
  for (const SwitchTier& tier : cluster.tiers) {
    tiers.push_back({{"hosts", tier.hosts}});
    if (tier.rate_bits > 0)
      tiers.back()["rate_bits"] = tier.rate_bits;
    else
      tiers.back()["oversubscription"] = tier.oversubscription;
  }
  return tiers;
}

Ordered tried_in(const Prediction& row) {
  Ordered tried = Ordered::array();
  for (const control::Tuner::News& one : row.tuned)
    tried.push_back({{"buckets", one.tried.buckets},
                     {"tried", one.tried.what},
                     {"gain", one.gain ? Ordered(*one.gain) : Ordered()},
                     {"kept", one.is_better}});
  return tried;
}

Ordered options_of(const Request& request) {
  Ordered options = Ordered::object();
  for (const GivenOption& one : request.given)
    options[one.name] = one.value.empty() ? Ordered(true) : Ordered(one.value);
  return options;
}

std::vector<std::string> names_of(const StartedCall& call, const workload::Model& model) {
  std::vector<std::string> names;
  for (const size_t tensor : call.which)
    names.push_back(tensor < model.parameters.size()
                        ? model.parameters[tensor].name
                        : model.exchanges[tensor - model.parameters.size()].name);
  return names;
}

Ordered row_of(const Prediction& row, const workload::Model& model) {
  Ordered out = {{"ranks", row.ranks},
                 {"hosts", row.hosts},
                 {"host_order", row.host_order.empty() ? Ordered() : Ordered(row.host_order)},
                 {"servers", row.servers},
                 {"detail", name_of(row.detail)},
                 {"steps", row.steps},
                 {"compute_ms", row.compute_ms},
                 {"step_ms", row.step_ms},
                 {"step_p5_ms", row.step_p5_ms},
                 {"step_p95_ms", row.step_p95_ms},
                 {"efficiency", row.efficiency},
                 {"bottleneck", row.bottleneck.empty() ? Ordered() : Ordered(row.bottleneck)},
                 {"link_busy", row.link_busy},
                 {"core_busy", row.core_busy},
                 {"lost_ms", nullptr},
                 {"lost_steps", row.lost_steps},
                 {"culprits", Ordered::array()},
                 {"bucket_bytes", row.bucket_bytes},
                 {"calls", row.calls},
                 {"negotiation_messages", row.messages},
                 {"plans", row.plans_begun},
                 {"tuned", tried_in(row)},
                 {"algorithms", row.algorithms},
                 {"last_calls", Ordered::array()}};
  for (const StartedCall& one : row.last_calls)
    out["last_calls"].push_back(
        {{"tensors", one.tensors}, {"bytes", one.bytes}, {"names", names_of(one, model)}});
  if (row.has_losses)
    out["lost_ms"] = {{"links", row.losses.links_ms},
                      {"hosts", row.losses.hosts_ms},
                      {"jitter", row.losses.jitter_ms},
                      {"slowdown", row.losses.slowdown_ms}};
  for (const Culprit& one : row.culprits)
    out["culprits"].push_back(
        {{"kind", one.kind}, {"where", one.where}, {"text", one.text}, {"gain_ms", one.gain_ms}});
  return out;
}

// Of the last column.
std::string means_of(const Request& request, const Prediction& row) {
  if (row.servers == 0 && row.calls == 0) return "no calls";
  if (row.servers == 0)
    return fmt::format(
        "{:g} call{}{}{}{}", row.calls, row.calls == 1 ? "" : "s",
        row.bucket_bytes == 0 ? ", none fused" : " up to " + bench::size_text(row.bucket_bytes),
        row.algorithms.empty() ? "" : ", ", kinds_of(row.algorithms));
  return fmt::format("{} server{}, {} variables", row.servers, row.servers == 1 ? "" : "s",
                     placement_text(request.servers));
}

}  // namespace

std::string tuned_text(const Request& request, const Prediction& row) {
  if (request.tuned_steps == 0 || row.servers > 0) return "";
  const std::string after = fmt::format("after {} steps of tuning: ", request.tuned_steps);
  if (row.tuned.empty()) return after + "nothing was tried; more steps may find something";
  std::string kept = "nothing better";
  for (const control::Tuner::News& one : row.tuned)
    if (one.is_better) kept = one.tried.what;
  return fmt::format("{}{} ({} tried)", after, kept, row.tuned.size());
}

std::string placement_text(const Servers& servers) {
  if (!servers.is_whole) return "cut";
  return servers.is_greedy ? "greedy" : "whole";
}

std::string strategy_text(const Servers& servers) {
  switch (servers.strategy) {
    case Strategy::kAllreduce:
      return "allreduce";
    case Strategy::kParameterServer:
      return "parameter-server";
    case Strategy::kTensorflowServers:
      break;
  }
  return "tensorflow-servers";
}

std::string world_text(const workload::Model& model) {
  if (model.world == 0) return {};
  return fmt::format("the workload is of a job of {}; what a rank computes is taken to be the same here",
                     model.world == 1 ? "one rank" : fmt::format("{} ranks", model.world));
}

// The step of the table is a median. Said where the shares do not add up to it.
std::string mean_text(const Prediction& row) {
  const double mean_ms = row.compute_ms + row.losses.sum_ms();
  if (!row.has_losses || std::abs(mean_ms - row.step_ms) <= 0.01 * row.step_ms) return {};
  return fmt::format("{} ranks, what is lost is that of a mean step, {:.1f} ms over {} of {} steps\n",
                     row.ranks, mean_ms, row.lost_steps, row.steps);
}

std::string links_text(const Request& request) {
  const Cluster cluster = as_asked(request);
  const auto rate = [](double bits) { return bench::rate_text(static_cast<int64_t>(bits)); };
  const std::string tiers = tiers_text(cluster.tiers);
  const std::string burst =
      cluster.burst_bytes > 0
          ? fmt::format(", {} at {} after a pause",
                        bench::size_text(static_cast<int64_t>(cluster.burst_bytes)), rate(cluster.peak_bits))
          : "";
  const std::string nccl = cluster.gpus.empty() ? ""
                                                : fmt::format("; NCCL, {} {} inside a host", cluster.gpus,
                                                              rate(8e9 * cluster.within.bandwidth_gbps));
  return fmt::format("{}, {} a link{}, {:g} us one way{}{}", cluster.kind, rate(cluster.rate_bits), burst,
                     cluster.latency_us, tiers.empty() ? "" : "; " + tiers, nccl);
}

std::string page(const Report& report) {
  const Request& request = report.request;
  std::string text =
      fmt::format("{} ({:g} ms a step, {:.1f} MB of gradients) on {}\n{}\n\n", request.model.name,
                  request.model.compute_ms, static_cast<double>(request.model.bytes()) / 1e6,
                  request.cluster.source, links_text(request));
  if (const std::string note = world_text(request.model); !note.empty()) text += note + "\n\n";
  text += fmt::format("{:>6} {:>6} {:>11} {:>19} {:>11} {:>11} {:>7} {:>7} {:>7} {:>9}  {}\n", "ranks",
                      "hosts", "step in ms", "5 to 95 %", "efficiency", "bottleneck", "links", "hosts",
                      "jitter", "slowdown", "buckets");
  for (const Prediction& row : report.rows) {
    const auto lost = [&](double ms) {
      return row.has_losses ? fmt::format("{:.1f}", ms) : std::string("-");
    };
    text += fmt::format(
        "{:>6} {:>6} {:>11.1f} {:>19} {:>9.1f} % {:>11} {:>7} {:>7} {:>7} {:>9}  {}\n", row.ranks, row.hosts,
        row.step_ms, fmt::format("{:.1f} to {:.1f}", row.step_p5_ms, row.step_p95_ms), 100 * row.efficiency,
        row.bottleneck.empty() ? "-" : row.bottleneck, lost(row.losses.links_ms), lost(row.losses.hosts_ms),
        lost(row.losses.jitter_ms), lost(row.losses.slowdown_ms), means_of(request, row));
    if (!row.host_order.empty())
      text += fmt::format("{:>6}  hosts in the order {}\n", "", fmt::join(row.host_order, ","));
  }
  if (request.split)
    text += "\nlinks, hosts, jitter, slowdown: milliseconds of a step that are lost to each\n";
  for (const Prediction& row : report.rows) text += mean_text(row);
  for (const Prediction& row : report.rows)
    if (const std::string tuned = tuned_text(request, row); !tuned.empty())
      text += fmt::format("{} ranks, {}\n", row.ranks, tuned);
  for (const Prediction& row : report.rows)
    if (!row.culprits.empty())
      text += fmt::format("{} ranks lose {:.1f} ms of a step to {}\n", row.ranks,
                          row.culprits.front().gain_ms, row.culprits.front().text);
  return text;
}

std::string json(const Report& report) {
  const Request& request = report.request;
  const Cluster cluster = as_asked(request);
  const Costs& costs = cluster.costs;
  Ordered used = Ordered::object();
  for (const CostField& field : kCostFields) used[std::string(field.name)] = costs.*field.field;
  const bool has_servers = request.servers.strategy != Strategy::kAllreduce;
  Ordered late = Ordered::array();
  for (const bench::LateRank& one : request.late) late.push_back({{"rank", one.rank}, {"share", one.share}});
  Ordered root = {
      {"format", 1},
      {"options", options_of(request)},
      {"workload",
       {{"name", request.model.name},
        {"source", request.model.source},
        {"compute_ms", request.model.compute_ms},
        {"bytes", request.model.bytes()},
        {"tensors", request.model.parameters.size()},
        {"world", request.model.world > 0 ? Ordered(request.model.world) : Ordered()},
        {"note", world_text(request.model)}}},
      {"cluster",
       {{"source", request.cluster.source},
        {"kind", cluster.kind},
        {"rate_bits", cluster.rate_bits},
        {"latency_us", cluster.latency_us},
        {"burst_bytes", cluster.burst_bytes},
        {"peak_bits", cluster.peak_bits},
        {"gpus", cluster.gpus.empty() ? Ordered() : Ordered(cluster.gpus)},
        {"tiers", tiers_of(cluster)},
        {"costs", std::move(used)}}},
      {"cross_step", request.cross_step},
      {"plans", request.plans},
      {"noise", {{"step", request.noise.step}, {"rank", request.noise.rank}, {"seed", request.noise.seed}}},
      {"strategy", strategy_text(request.servers)},
      {"placement", has_servers ? placement_text(request.servers) : ""},
      {"server_hosts", has_servers ? (request.servers.is_dedicated ? "dedicated" : "shared") : ""},
      {"late", std::move(late)},
      {"results", Ordered::array()}};
  for (const Prediction& row : report.rows) root["results"].push_back(row_of(row, request.model));
  return root.dump(2) + "\n";
}

}  // namespace rueda::simulate
