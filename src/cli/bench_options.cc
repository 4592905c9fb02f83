#include "cli/bench_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "bench/sizes.h"
#include "cli/number_checks.h"
#include "cli/parse_error.h"
#include "cli/words.h"
#include "rueda/base/nearest.h"
#include "rueda/base/transport_names.h"

namespace rueda::cli {
namespace {

constexpr int kMaxRanks = 256, kMaxReplayRanks = 64;

constexpr const char* kBenchHelp = R"(rueda bench WHAT [options]: measures the library on this machine

  allreduce, allgather, broadcast, reducescatter, alltoall, barrier
             time and bandwidth of one collective, checked on every rank in every call
  latency    small allreduces back to back: percentiles and a histogram
  burst      all gradients of a model at once: --mode fused,unfused,planned
  replay     training steps whose computing is slept and whose communication is real, between hosts made of
             network namespaces with limited links (needs root); a command after -- runs there instead

  rueda bench allreduce -np 2 --sizes 4B,64KiB,64MiB --memory private --transport shm,tcp --json out.json
  rueda bench burst -np 2 --model resnet50
  rueda bench replay -np 2,4,8 --rate 1gbit --model resnet50 --strategy auto,ring,parameter-server
  rueda bench replay -np 4 --rate 1gbit -- python train.py

Under rueda run, torchrun, mpirun or srun it is a rank of that job: rueda run -H a:2,b:2 rueda bench allreduce

)";
constexpr std::array<std::string_view, 9> kSubjects = {"allreduce",     "allgather", "broadcast",
                                                       "reducescatter", "alltoall",  "barrier",
                                                       "latency",       "burst",     "replay"};

struct RawBench {
  std::string ranks, sizes, memory, transport = "auto", mode = "fused,unfused,planned", strategy = "auto";
  std::string model = "resnet50", rate = "1gbit", ready = "model", servers, placement, slow_hosts, slow_pairs,
              late;
};

std::string has_text(const std::string& text) { return text.empty() ? "nothing is given" : ""; }

void add_options(CLI::App& app, RawBench& raw, bench::Request& request) {
  app.add_option("--np,--num-proc", raw.ranks, "-np N[,N...]: ranks, a job for each number (2)");
  app.add_option("--sizes", raw.sizes, "sizes of a rank's buffer: 4B,64KiB,64MiB")->check(has_text);
  app.add_option("--memory", raw.memory,
                 "where buffers are: shared (rueda_alloc), private, or both (both; replay: private)");
  app.add_option("--transport", raw.transport,
                 "auto, " + all_transports(", ") + ", or several of them (auto)");
  app.add_option("--algorithm", request.algorithm, "force an algorithm, as RUEDA_ALGORITHM does");
  app.add_option("--wire", request.wire,
                 "burst, replay: how sums travel between hosts: float32, bf16, fp16, int8 (RUEDA_WIRE)");
  app.add_option("--iterations", request.iterations, "calls, bursts or steps measured for each line")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--seconds", request.seconds, "time for each line, where --iterations is not given (0.5)")
      ->check(number_from(0.001, 3600));
  app.add_option("--model", raw.model,
                 "burst, replay: models, or .json files with gradient lists (resnet50)");
  app.add_option("--mode", raw.mode,
                 "burst: fused (64 MiB, new names every time), unfused, planned (the same names again)");
  app.add_option("--rate", raw.rate, "replay: rate of each host's link, each way (1gbit)");
  app.add_option("--strategy", raw.strategy,
                 "replay: some of auto, ring, two-level, parameter-server (auto)");
  app.add_option("--servers", raw.servers,
                 "parameter-server: how many, or ratios of servers to ranks: 1:1,1:4,2 (1:1)")
      ->check(has_text);
  app.add_option("--placement", raw.placement,
                 "parameter-server: cut (large tensors over all servers), whole (each variable on one, in "
                 "turns, as TensorFlow 1.x placed them), or both (cut)")
      ->check(has_text);
  app.add_flag("--cross-step", request.cross_step,
               "replay: the next forward waits for each layer's own gradients, not for all of them");
  app.add_option("--per-host", request.per_host, "replay: ranks on one host (1)")->check(CLI::Range(1, 64));
  app.add_option(
         "--dilation", request.dilation,
         "replay: stretches computing (default: 6.25 Gbit/s divided by the rate, so that a slow link stands "
         "for a quarter of 25 Gbit/s)")
      ->check(number_from(0.0001, 1e6));
  app.add_option("--ready", raw.ready,
                 "replay: when gradients are ready: as the model says, or even through backward (model)");
  app.add_option("--slow-host", raw.slow_hosts, "replay: hosts whose port has another rate: 2:250mbit")
      ->check(has_text);
  app.add_option("--slow-pair", raw.slow_pairs, "replay: hosts between which less passes: 0-3:100mbit")
      ->check(has_text);
  app.add_option("--late", raw.late, "replay: ranks that compute longer in every step: 1:20%")
      ->check(has_text);
  app.add_option("--congestion", request.congestion, "replay: TCP's congestion control (reno)");
  app.add_option("--json", request.json, "also write the results to this file");
}

// Each word must be one of those known.
Status take_words(const char* flag, const std::string& text, std::vector<std::string> known,
                  std::vector<std::string>& target) {
  Result<std::vector<std::string>> words = bench::parse_words(text);
  if (!words.is_ok()) return words.status();
  for (const std::string& word : words.value())
    if (std::ranges::find(known, word) == known.end())
      return {Code::kInvalidArgument,
              fmt::format("{} cannot be {}; choose from {}", flag, word, fmt::join(known, ", "))};
  target = std::move(words).value();
  return Status::ok();
}

// Only a replay whose steps wait has a place for them.
Status check_exchanges(const bench::Request& request) {
  const auto model =
      std::ranges::find_if(request.models, [](const workload::Model& one) { return !one.exchanges.empty(); });
  const bool has_servers =
      std::ranges::find(request.strategies, "parameter-server") != request.strategies.end();
  if (model == request.models.end() || (!request.cross_step && !has_servers)) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("{} has \"exchanges\", which {} does not do; leave that out", model->name,
                      request.cross_step ? "--cross-step" : "--strategy parameter-server")};
}

Status take_models(const RawBench& raw, bench::Request& request) {
  const Result<std::vector<std::string>> names = bench::parse_words(raw.model);
  if (!names.is_ok()) return names.status();
  for (const std::string& name : names.value()) {
    Result<workload::Model> model = workload::find_model(name);
    if (!model.is_ok()) return model.status();
    if (std::ranges::find(request.models, model.value().name, &workload::Model::name) != request.models.end())
      return {Code::kInvalidArgument, fmt::format("model {} is given twice; name each once", name)};
    request.models.push_back(std::move(model).value());
    if (raw.ready == "even") request.models.back().stated_ready_ms.clear();
  }
  return Status::ok();
}

std::string default_sizes(const std::string& what) {
  return what == "latency" ? "4B,64B,1KiB,16KiB" : "4B,1KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB";
}

Status take_servers(const RawBench& raw, bench::Request& request) {
  if (raw.servers.empty() && raw.placement.empty()) return Status::ok();
  if (request.what != "replay" ||
      std::ranges::find(request.strategies, "parameter-server") == request.strategies.end())
    return {
        Code::kInvalidArgument,
        "--servers and --placement are for replay with --strategy parameter-server; add it, or leave them "
        "out"};
  if (!raw.placement.empty())
    if (Status status = take_words("--placement", raw.placement, {"cut", "whole"}, request.placements);
        !status.is_ok())
      return status;
  if (raw.servers.empty()) return Status::ok();
  Result<std::vector<bench::ServerCount>> servers =
      bench::parse_servers(raw.servers, std::ranges::min(request.ranks));
  if (!servers.is_ok()) return servers.status();
  request.servers = std::move(servers).value();
  return Status::ok();
}

Status take_faults(const RawBench& raw, bench::Request& request) {
  bench::Faults& faults = request.faults;
  const auto take = [](const char* flag, const std::string& text, auto parse, auto& target) {
    if (text.empty()) return Status::ok();
    auto found = parse(text);
    if (!found.is_ok())
      return Status(Code::kInvalidArgument, fmt::format("{}: {}", flag, found.status().why));
    target = std::move(found).value();
    return Status::ok();
  };
  Status status = take("--slow-host", raw.slow_hosts, bench::parse_slow_hosts, faults.hosts);
  if (status.is_ok()) status = take("--slow-pair", raw.slow_pairs, bench::parse_slow_pairs, faults.pairs);
  if (status.is_ok()) status = take("--late", raw.late, bench::parse_late_ranks, faults.late);
  if (!status.is_ok() || (raw.slow_hosts + raw.slow_pairs + raw.late).empty()) return status;
  if (request.what != "replay")
    return {Code::kInvalidArgument, "--slow-host, --slow-pair and --late are for replay; leave them out"};
  if (!faults.late.empty() && !request.command.empty())
    return {Code::kInvalidArgument,
            "--late is for what replay computes itself; a command after -- computes as long as it does"};
  return faults.check(std::ranges::min(request.ranks), request.per_host, request.rate);
}

Status take_wire(const bench::Request& request) {
  std::vector<std::string> chosen;
  if (request.what != "burst" && request.what != "replay")
    return {Code::kInvalidArgument, "--wire is for burst and replay; leave it out"};
  return take_words("--wire", request.wire, {"float32", "bf16", "fp16", "int8"}, chosen);
}

Status complete(const RawBench& raw, bench::Request& request) {
  if (!request.command.empty() && !request.json.empty())
    return {Code::kInvalidArgument, "--json is for what rueda bench measures itself, not for a command"};
  const bool is_replay = request.what == "replay";
  const Result<std::vector<int>> ranks =
      bench::parse_counts(raw.ranks.empty() ? "2" : raw.ranks, 1, is_replay ? kMaxReplayRanks : kMaxRanks);
  if (!ranks.is_ok()) return ranks.status();
  request.ranks = ranks.value();
  const Result<std::vector<int64_t>> sizes =
      bench::parse_sizes(raw.sizes.empty() ? default_sizes(request.what) : raw.sizes);
  if (!sizes.is_ok()) return sizes.status();
  request.sizes = sizes.value();
  for (const int64_t size : request.sizes)
    if (size % 4 != 0)
      return {Code::kInvalidArgument,
              fmt::format("{} is not a whole number of float32 elements; give multiples of 4 B",
                          bench::size_text(size))};
  const Result<int64_t> rate = bench::parse_link_rate(raw.rate);
  if (!rate.is_ok()) return rate.status();
  request.rate = rate.value();
  request.is_memory_chosen = !raw.memory.empty();
  const std::string memory = request.is_memory_chosen ? raw.memory : is_replay ? "private" : "shared,private";
  if (Status status = take_words("--memory", memory, {"shared", "private"}, request.memory); !status.is_ok())
    return status;
  std::vector<std::string> transports = {"auto"};
  transports.insert(transports.end(), kTransportNames.begin(), kTransportNames.end());
  if (Status status = take_words("--transport", raw.transport, std::move(transports), request.transports);
      !status.is_ok())
    return status;
  if (Status status = take_words("--mode", raw.mode, {"fused", "unfused", "planned"}, request.modes);
      !status.is_ok())
    return status;
  if (Status status = take_words("--strategy", raw.strategy,
                                 {"auto", "ring", "two-level", "parameter-server"}, request.strategies);
      !status.is_ok())
    return status;
  if (!request.wire.empty())
    if (Status status = take_wire(request); !status.is_ok()) return status;
  if (raw.ready != "model" && raw.ready != "even")
    return {Code::kInvalidArgument, fmt::format("--ready cannot be {}; choose from model, even", raw.ready)};
  if (request.cross_step &&
      (!is_replay || std::ranges::find(request.strategies, "parameter-server") != request.strategies.end()))
    return {Code::kInvalidArgument,
            "--cross-step is for replay with allreduce; leave out parameter-server, or --cross-step"};
  if (Status status = take_servers(raw, request); !status.is_ok()) return status;
  if (Status status = take_faults(raw, request); !status.is_ok()) return status;
  const bool has_models = is_replay || request.what == "burst";
  if (!has_models) return Status::ok();
  if (Status status = take_models(raw, request); !status.is_ok()) return status;
  return check_exchanges(request);
}

Status unknown_subject(const std::string& what) {
  const std::vector<std::string> known(kSubjects.begin(), kSubjects.end());
  const std::string nearest = nearest_word(what, known);
  const std::string hint = nearest.empty() ? "" : fmt::format("did you mean {}? Otherwise ", nearest);
  return {Code::kInvalidArgument, fmt::format("there is nothing called {} to measure; {}choose from {}", what,
                                              hint, fmt::join(kSubjects, ", "))};
}

}  // namespace

Result<BenchRequest> parse_bench(const std::vector<std::string>& arguments) {
  BenchRequest parsed;
  bench::Request& request = parsed.request;
  RawBench raw;
  CLI::App app("", "rueda bench");
  add_options(app, raw, request);
  const std::string what = arguments.empty() ? "--help" : arguments.front();
  if (what == "--help" || what == "-h") {
    parsed.text = kBenchHelp + app.help();
    return parsed;
  }
  if (std::ranges::find(kSubjects, what) == kSubjects.end()) return unknown_subject(what);
  request.what = what;
  request.arguments = arguments;
  const auto dashes = std::ranges::find(arguments, "--");
  if (dashes != arguments.end()) request.command.assign(dashes + 1, arguments.end());
  if (!request.command.empty() && what != "replay")
    return Status(Code::kInvalidArgument, "a command after -- is only for replay, on whose hosts it runs");
  if (!request.command.empty() && !request.json.empty())
    return Status(Code::kInvalidArgument,
                  "--json is for what rueda bench measures itself, not for a command");
  // CLI11 reports by exceptions; they end here.
  try {
    app.parse(for_parser({arguments.begin() + 1, dashes}));
  } catch (const CLI::CallForHelp&) {
    parsed.text = kBenchHelp + app.help();
    return parsed;
  } catch (const CLI::ParseError& error) {
    return Status(Code::kInvalidArgument, sentence_of(error, app, "rueda bench"));
  }
  if (Status status = complete(raw, request); !status.is_ok()) return status;
  return parsed;
}

}  // namespace rueda::cli
