#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <optional>

#include "bench/sizes.h"
#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cli/parse_error.h"
#include "cli/simulate_given.h"
#include "cli/simulate_misuse.h"
#include "cli/simulate_progress.h"
#include "cli/words.h"
#include "simulate/simulate.h"
#include "simulate/validate.h"
#include "timeline/output_file.h"

namespace rueda::cli {
namespace {

constexpr const char* kSimulateHelp =
    R"(rueda simulate [options]: predicts how long a training step takes on a cluster

  rueda simulate --model resnet50 --cluster c.json            as it is
  rueda simulate --model w.json --cluster hosts.json --ranks 8,32,128 --bandwidth 25gbit
  rueda simulate --model vgg16 --hosts 4 --bandwidth 1gbit    without a file: hosts that are alike
  rueda simulate --model vgg16 --ranks 8,16,32 --per-host 8   without a file: as many as the ranks need

The decisions of every rank (negotiation, plans, buckets, order of calls, algorithms) are made by the code
that trains, under virtual time. A workload is a model of rueda bench, or what rueda timeline workload has
made of a short run. A cluster is a file as docs/simulate.md describes, or what rueda preflight --json wrote.

)";

struct RawSimulate {
  std::string model = "resnet50", cluster, ranks, bandwidth, tiers, fusion, bucket, chunk, detail = "auto",
              json, html, late, strategy = "allreduce", servers, placement, server_hosts;
  int hosts = 0, per_host = 0;
  double latency_us = -1, compute_ms = 0, dilation = 1;
  std::optional<double> step_noise, rank_noise;
  bool validate = false, quick = false;
  int repeats = 3;
  std::string measured, program, costs, write_costs, calibrate;
  bool rdma = false, no_plans = false, no_split = false;
};

std::string is_given(const std::string& text) { return text.empty() ? "nothing is given" : ""; }

void add_cluster_options(CLI::App& app, RawSimulate& raw, simulate::Request& request) {
  app.add_option("--cluster", raw.cluster, "the file of the cluster")->check(is_given);
  app.add_option("--costs", raw.costs,
                 "a cluster's file whose costs are taken instead; --validate: instead of fitting them")
      ->check(is_given);
  app.add_option("--hosts", raw.hosts, "instead of a file: so many hosts that are alike")
      ->check(CLI::Range(1, 4096));
  app.add_option("--ranks,--np", raw.ranks, "what if: ranks, a prediction for each number")->check(is_given);
  app.add_option("--per-host", raw.per_host, "what if: ranks on each host")->check(CLI::Range(1, 256));
  app.add_option("--bandwidth", raw.bandwidth, "what if: rate of each link, each way: 25gbit")
      ->check(is_given);
  app.add_option("--latency", raw.latency_us, "what if: microseconds one way")->check(number_from(0, 1e6));
  app.add_option(
         "--tiers", raw.tiers,
         "what if: switches over so many hosts, whose uplinks carry less than is below them: 8:4,32:2")
      ->check(is_given);
  app.add_flag("--rdma", raw.rdma, "what if: links move bytes without the cores of hosts");
  app.add_option(
         "--host-order", request.host_order,
         "the order of -H: given, best (the ring's slowest link is fastest), or all names: a,c,b (given)")
      ->check(is_given);
}

void add_simulate_options(CLI::App& app, RawSimulate& raw, simulate::Request& request) {
  app.add_option("--model,--workload", raw.model, "a model, or a .json file with a workload (resnet50)");
  add_cluster_options(app, raw, request);
  app.add_option("--compute", raw.compute_ms, "what if: milliseconds that a step computes")
      ->check(number_from(0.001, 3.6e6));
  app.add_option("--dilation", raw.dilation, "stretches computing, as rueda bench replay does (1)")
      ->check(number_from(0.0001, 1e6));
  app.add_option("--algorithm", request.algorithm, "force one, as RUEDA_ALGORITHM does (NCCL: ring, tree)")
      ->check(is_given);
  app.add_option("--fusion", raw.fusion, "bytes up to which tensors are fused; 0: none (128MiB)")
      ->check(is_given);
  app.add_option("--bucket", raw.bucket, "bytes of a plan's buckets (default: by the latency)")
      ->check(is_given);
  app.add_option("--chunk", raw.chunk, "bytes that are received, reduced and sent on at a time (256KiB)")
      ->check(is_given);
  app.add_option("--cycle", request.cycle_ms, "milliseconds from one round of negotiation to the next (0)")
      ->check(number_from(0, 1e5));
  app.add_flag("--no-plans", raw.no_plans, "negotiate every step");
  app.add_flag("--cross-step", request.cross_step,
               "the next forward pass waits for each layer's own gradients");
  app.add_option("--detail", raw.detail, "message, call, or auto: messages up to 64 ranks (auto)");
  app.add_option("--tune", request.tuned_steps,
                 "steps in which buckets are tuned before those that count (0)")
      ->check(CLI::Range(0, 100000));
  app.add_option("--steps", request.steps, "steps, after those in which a plan is learned (30)")
      ->check(CLI::Range(4, 100000));
  app.add_option("--step-noise", raw.step_noise, "relative spread of computing from step to step")
      ->check(number_from(0, 0.99));
  app.add_option("--rank-noise", raw.rank_noise, "… and between ranks (both: of the workload, or 0)")
      ->check(number_from(0, 0.99));
  app.add_option("--seed", request.noise.seed, "of the noise (1)")
      ->check(whole_number(0, std::numeric_limits<uint64_t>::max()));
  app.add_option("--strategy", raw.strategy,
                 "allreduce, parameter-server (as rueda bench replay has them), or tensorflow-servers (as "
                 "TensorFlow 1.x has them) (allreduce)");
  app.add_option("--servers", raw.servers,
                 "how many parameter servers: a ratio to ranks, 1:4, or a number (1:1)")
      ->check(is_given);
  app.add_option(
         "--placement", raw.placement,
         "variables on servers: cut (parameter-server), whole, each on one in turns (tensorflow-servers), or "
         "greedy, each on the one with the fewest bytes")
      ->check(is_given);
  app.add_option("--server-hosts", raw.server_hosts,
                 "tensorflow-servers: dedicated hosts, or shared with ranks (dedicated)")
      ->check(is_given);
  app.add_option("--late", raw.late, "ranks that compute longer in every step: 1:20% is rank 1, by a fifth")
      ->check(is_given);
  app.add_flag("--no-split", raw.no_split, "do not say what is lost to which cause: an eighth of the time");
  app.add_option(
         "--calibrate", raw.calibrate,
         "measure for about a minute what communication costs this machine (as root), and write that to "
         "this file, for --costs")
      ->check(is_given);
  app.add_flag("--validate", raw.validate,
               "compare with what rueda bench replay measures on this machine (as root, an hour)");
  app.add_flag("--quick", raw.quick, "--validate: a handful of replays, some minutes");
  app.add_option("--repeats", raw.repeats, "--validate: how often each is measured (3)")
      ->check(CLI::Range(1, 100));
  app.add_option("--measured", raw.measured,
                 "--validate: the report of an earlier one, whose measurements are taken; one that was "
                 "interrupted goes on")
      ->check(is_given);
  app.add_option("--program", raw.program,
                 "--validate: also a training program that marks its steps: 'python bench/torch_steps.py'")
      ->check(is_given);
  app.add_option("--write-costs", raw.write_costs,
                 "--validate: write the fitted costs to this file, for --cluster and --costs")
      ->check(is_given);
  app.add_option("--html", raw.html, "also write a page for browsers to this file")->check(is_given);
  app.add_option("--json", raw.json, "also write the report to this file; - prints it instead of the page")
      ->check(is_given);
}

Status take_bytes(const char* flag, const std::string& text, int64_t& target) {
  if (text.empty()) return Status::ok();
  const Result<int64_t> bytes = bench::parse_bytes(text);
  if (!bytes.is_ok()) return {Code::kInvalidArgument, fmt::format("{}: {}", flag, bytes.status().why)};
  // HOROVOD_FUSION_THRESHOLD is in bytes, and --fusion-threshold-mb of horovodrun is not.
  if (bytes.value() < 1 << 10 && text.find_first_not_of("0123456789") == std::string::npos)
    return {Code::kInvalidArgument,
            fmt::format("{}: {} without a unit would be {} bytes; write {}MiB, or {}B if that is meant", flag,
                        text, text, text, text)};
  target = bytes.value();
  return Status::ok();
}

// 0 turns fusion off, as in HOROVOD_FUSION_THRESHOLD.
Status take_fusion(const std::string& text, int64_t& target) {
  if (text != "0" && text != "0B") return take_bytes("--fusion", text, target);
  target = 0;
  return Status::ok();
}

Status take_chunk(const RawSimulate& raw, simulate::Request& request) {
  if (const Status status = take_bytes("--chunk", raw.chunk, request.chunk_bytes); !status.is_ok())
    return status;
  if (request.chunk_bytes >= 1 << 10 && request.chunk_bytes <= 1 << 30) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("--chunk: {} is not from 1KiB to 1GiB, the range of RUEDA_CHUNK_BYTES", raw.chunk)};
}

Status take_cluster(const RawSimulate& raw, simulate::Request& request) {
  if (!raw.cluster.empty() && raw.hosts != 0)
    return {Code::kInvalidArgument,
            "--cluster and --hosts both say which hosts there are; leave one of them out"};
  if (raw.cluster.empty() && raw.hosts == 0 && raw.ranks.empty())
    return {Code::kInvalidArgument,
            "give --cluster FILE, or --hosts N or --ranks N for hosts that are alike"};
  Result<simulate::Cluster> cluster =
      !raw.cluster.empty()
          ? simulate::read_cluster(raw.cluster)
          : simulate::parse_cluster(fmt::format(R"({{"hosts": {}}})", std::max(1, raw.hosts)), "--hosts");
  if (!cluster.is_ok()) return cluster.status();
  request.cluster = std::move(cluster).value();
  if (!raw.costs.empty()) {
    const Result<simulate::Cluster> fitted = simulate::read_cluster(raw.costs);
    if (!fitted.is_ok()) return {Code::kInvalidArgument, "--costs: " + fitted.status().why};
    request.cluster.costs = fitted.value().costs;
    simulate::use_kind(request.cluster, request.cluster.kind);
  }
  if (raw.hosts != 0)
    request.cluster.source = raw.hosts == 1 ? "1 host" : fmt::format("{} hosts that are alike", raw.hosts);
  else if (raw.cluster.empty())
    request.cluster.source = "hosts that are alike";
  return Status::ok();
}

// --hosts says how many there are, so all ranks are on these.
Status check_ranks(const RawSimulate& raw, const std::vector<int>& ranks) {
  const int each = std::max(1, raw.per_host);
  for (const int one : ranks) {
    if (raw.hosts == 0 || one == raw.hosts * each) continue;
    const std::string clash = fmt::format("--ranks {} contradicts --hosts {}, which are {} of {} each", one,
                                          raw.hosts, raw.hosts * each, each);
    if (one % raw.hosts == 0)
      return {Code::kInvalidArgument,
              fmt::format("{}; give --per-host {}, or leave --hosts or --ranks out", clash, one / raw.hosts)};
    return {Code::kInvalidArgument, clash + "; leave --hosts or --ranks out"};
  }
  return Status::ok();
}

Status take_changes(const RawSimulate& raw, simulate::Request& request) {
  simulate::Changes& changes = request.changes;
  if (!raw.bandwidth.empty()) {
    const Result<int64_t> rate = bench::parse_rate(raw.bandwidth);
    if (!rate.is_ok()) return {Code::kInvalidArgument, "--bandwidth: " + rate.status().why};
    changes.rate_bits = static_cast<double>(rate.value());
  }
  if (!raw.tiers.empty()) {
    Result<std::vector<simulate::SwitchTier>> tiers = simulate::parse_tiers(raw.tiers);
    if (!tiers.is_ok()) return {Code::kInvalidArgument, "--tiers: " + tiers.status().why};
    changes.tiers = std::move(tiers).value();
  }
  if (raw.latency_us >= 0) changes.latency_us = raw.latency_us;
  if (raw.per_host > 0) changes.per_host = raw.per_host;
  if (raw.rdma) changes.kind = "rdma";
  if (raw.ranks.empty()) return Status::ok();
  const Result<std::vector<int>> ranks = bench::parse_counts(raw.ranks, 1, simulate::kMostRanks);
  if (!ranks.is_ok()) return {Code::kInvalidArgument, "--ranks: " + ranks.status().why};
  request.ranks = ranks.value();
  return check_ranks(raw, request.ranks);
}

Status take_servers(const RawSimulate& raw, simulate::Request& request) {
  simulate::Servers& servers = request.servers;
  const auto choose = [](const char* flag, const std::string& text, const std::string& first,
                         const std::string& second) -> Status {
    if (text.empty() || text == first || text == second) return Status::ok();
    return {Code::kInvalidArgument,
            fmt::format("{} cannot be {}; choose {} or {}", flag, text, first, second)};
  };
  if (raw.strategy == "allreduce") {
    if ((raw.servers + raw.placement + raw.server_hosts).empty()) return Status::ok();
    return {Code::kInvalidArgument,
            "--servers, --placement and --server-hosts are for parameter servers; add --strategy "
            "parameter-server or tensorflow-servers, or leave them out"};
  }
  Status status = choose("--strategy", raw.strategy, "parameter-server", "tensorflow-servers");
  if (!status.is_ok()) return {Code::kInvalidArgument, status.why + ", or allreduce"};
  const bool is_tensorflow = raw.strategy == "tensorflow-servers";
  servers.strategy =
      is_tensorflow ? simulate::Strategy::kTensorflowServers : simulate::Strategy::kParameterServer;
  const bool is_greedy = is_tensorflow && raw.placement == "greedy";
  if (status = choose("--placement", is_greedy ? "" : raw.placement, "cut", "whole"); !status.is_ok())
    return {Code::kInvalidArgument, status.why + (is_tensorflow ? ", or greedy" : "")};
  if (status = choose("--server-hosts", raw.server_hosts, "dedicated", "shared"); !status.is_ok())
    return status;
  if (!is_tensorflow && raw.server_hosts == "dedicated")
    return {Code::kInvalidArgument,
            "servers of --strategy parameter-server are on the hosts of ranks, as in rueda bench replay; for "
            "hosts of their own take tensorflow-servers"};
  if (request.cross_step || !request.algorithm.empty())
    return {Code::kInvalidArgument, "--cross-step and --algorithm are for allreduce; leave them out"};
  if (!raw.bucket.empty() || !raw.fusion.empty() || request.tuned_steps > 0)
    return {Code::kInvalidArgument,
            "--bucket, --fusion and --tune are for allreduce, and parameter servers take each variable by "
            "itself; leave them out"};
  servers.is_whole = raw.placement.empty() ? is_tensorflow : raw.placement != "cut";
  servers.is_greedy = is_greedy;
  servers.is_dedicated = is_tensorflow && raw.server_hosts != "shared";
  if (raw.servers.empty()) return Status::ok();
  const Result<std::vector<bench::ServerCount>> counts =
      bench::parse_servers(raw.servers, simulate::kMostRanks);
  if (!counts.is_ok()) return {Code::kInvalidArgument, "--servers: " + counts.status().why};
  if (counts.value().size() > 1) return {Code::kInvalidArgument, "--servers takes one number or one ratio"};
  servers.count = counts.value().front();
  return Status::ok();
}

Status complete_simulate(const RawSimulate& raw, simulate::Request& request) {
  if (const Status status = take_cluster(raw, request); !status.is_ok()) return status;
  if (const Status status = take_changes(raw, request); !status.is_ok()) return status;
  Result<workload::Model> model = workload::find_model(raw.model);
  if (!model.is_ok()) return model.status();
  request.model = workload::stretched(std::move(model).value(), raw.compute_ms, raw.dilation);
  if (const Status status = take_fusion(raw.fusion, request.fusion_bytes); !status.is_ok()) return status;
  if (const Status status = take_bytes("--bucket", raw.bucket, request.bucket_bytes); !status.is_ok())
    return status;
  if (const Status status = take_chunk(raw, request); !status.is_ok()) return status;
  if (raw.detail != "auto" && raw.detail != "message" && raw.detail != "call")
    return {Code::kInvalidArgument, fmt::format("--detail {} is none of auto, message and call", raw.detail)};
  if (raw.detail == "message") request.detail = simulate::Detail::kMessage;
  if (raw.detail == "call") request.detail = simulate::Detail::kCall;
  if (const Status status = take_servers(raw, request); !status.is_ok()) return status;
  if (!raw.late.empty()) {
    Result<std::vector<bench::LateRank>> late = bench::parse_late_ranks(raw.late);
    if (!late.is_ok()) return {Code::kInvalidArgument, "--late: " + late.status().why};
    request.late = std::move(late).value();
  }
  const workload::Spread spread = request.model.spread.value_or(workload::Spread());
  request.noise.step = raw.step_noise.value_or(spread.step);
  request.noise.rank = raw.rank_noise.value_or(spread.rank);
  request.plans = !raw.no_plans;
  request.split = !raw.no_split;
  return Status::ok();
}

// Shows one form of the results, and writes the other one where --json names a file.
Status show(const std::string& path, const std::string& page, const std::string& json) {
  put(path == "-" ? json : page);
  return path.empty() || path == "-" ? Status::ok() : timeline::write_file(path, json);
}

// Before what may take long.
Status check_outputs(const std::vector<Output>& outputs) {
  if (const std::string why = clash_of(outputs); !why.empty()) return {Code::kInvalidArgument, why};
  for (const Output& one : outputs)
    if (!one.path.empty() && one.path != "-")
      if (const Status status = timeline::check_output(one.path); !status.is_ok()) return status;
  return Status::ok();
}

Status run_calibration(const std::string& path) {
  const Result<simulate::Validation> done = simulate::calibrate(own_path());
  if (!done.is_ok()) return done.status();
  const Status status = timeline::write_file(path, simulate::costs_json(done.value()));
  return status.is_ok() ? show("", simulate::page(done.value()), "") : status;
}

Status run_validation(const RawSimulate& raw) {
  std::optional<simulate::Calibration> calibration;
  if (!raw.costs.empty()) {
    const Result<simulate::Cluster> fitted = simulate::read_cluster(raw.costs);
    if (!fitted.is_ok()) return {Code::kInvalidArgument, "--costs: " + fitted.status().why};
    calibration = {.costs = fitted.value().costs, .latency_us = fitted.value().latency_us};
  }
  const Result<simulate::Validation> done = simulate::validate({.binary = own_path(),
                                                                .quick = raw.quick,
                                                                .repeats = raw.repeats,
                                                                .program = raw.program,
                                                                .measured = raw.measured,
                                                                .calibration = calibration,
                                                                .keep = raw.json == "-" ? "" : raw.json});
  if (!done.is_ok()) return done.status();
  if (!raw.write_costs.empty())
    if (const Status status = timeline::write_file(raw.write_costs, simulate::costs_json(done.value()));
        !status.is_ok())
      return status;
  return show(raw.json, simulate::page(done.value()), simulate::json(done.value()));
}

}  // namespace

int simulate_command(const Arguments& arguments) {
  const auto is_usage_error = [](const Status& status) { return status.code == Code::kInvalidArgument; };
  const auto refuse = [](const std::string& why) {
    fmt::print(stderr, "rueda simulate: {}\n", why);
    return kUsageError;
  };
  const auto ended = [](const Status& status) {
    if (!status.is_ok()) fmt::print(stderr, "rueda simulate: {}\n", status.why);
    return status.is_ok() ? 0 : 1;
  };
  RawSimulate raw;
  simulate::Request request;
  CLI::App app("", "rueda simulate");
  add_simulate_options(app, raw, request);
  try {
    app.parse(for_parser(arguments));
  } catch (const CLI::CallForHelp&) {
    put(kSimulateHelp + app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    return refuse(sentence_of(error, app, "rueda simulate"));
  }
  if (const std::string why = misplaced(app); !why.empty()) return refuse(why);
  const Status outputs = check_outputs({{"--json", raw.json},
                                        {"--html", raw.html},
                                        {"--write-costs", raw.write_costs},
                                        {"--calibrate", raw.calibrate}});
  if (!outputs.is_ok()) return is_usage_error(outputs) ? refuse(outputs.why) : ended(outputs);
  if (!raw.calibrate.empty()) return ended(run_calibration(raw.calibrate));
  if (raw.validate) {
    const Status status = run_validation(raw);
    return is_usage_error(status) ? refuse(status.why) : ended(status);
  }
  if (const Status status = complete_simulate(raw, request); !status.is_ok()) return refuse(status.why);
  request.given = given_options(app);
  const Result<simulate::Report> report = [&] {
    SimulateProgress progress;
    request.watch = [&](const simulate::Progress& now) { progress.show(now); };
    return simulate::simulate(request);
  }();
  if (!report.is_ok()) return refuse(report.status().why);
  Status status = show(raw.json, simulate::page(report.value()), simulate::json(report.value()));
  if (status.is_ok() && !raw.html.empty())
    status = timeline::write_file(raw.html, simulate::html(report.value(), command_text(arguments)));
  return ended(status);
}

}  // namespace rueda::cli
