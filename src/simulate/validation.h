// How well `rueda simulate` predicts what `rueda bench replay` measures: which replays are made, how the
// costs of a machine are fitted to some of them, and the table of the others. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/faults.h"
#include "rueda/base/status.h"
#include "simulate/cluster.h"

namespace rueda::simulate {

struct Replay {
  std::string model;
  int hosts = 2, per_host = 1;
  std::string rate = "1gbit";
  int64_t bucket_bytes = 0;       // of plans; 0 = the library chooses
  double dilation = 0;            // of computing; 0 = as rueda bench replay stretches it
  std::string strategy = "auto";  // of rueda bench replay
  bool cross_step = false;
  bench::Faults faults = {};
  std::string servers = "", placement = "";  // of strategy parameter-server: "1:1", "whole"
  std::string program = "";                  // a training program runs instead of a replay; a line for sh
  bool is_fitted = false;                    // the costs are fitted to it; it proves nothing

  [[nodiscard]] std::string name() const;  // "vgg16, 4 hosts, 1gbit, buckets of 2 MiB"
};
// quick: a handful that takes a few minutes. program: a line for sh, whose training is measured too; "" =
// none.
std::vector<Replay> replays(bool quick, const std::string& program = "");
// Those to which costs are fitted in a minute: short steps, in which links, calls and cores are busy by
// turns.
std::vector<Replay> calibration_replays();
inline constexpr int kCalibrationSteps = 8;       // of each at most
inline constexpr double kCalibrationReplayS = 7;  // within which each shall end
// How long a step takes at least: its computing, and its bytes from when they are ready, up to the slowest
// port.
double least_step_s(const Replay& replay);
// So many, and at least 2, that a replay ends within so many seconds or so, with one step before them that
// does not count.
int steps_for(const Replay& replay, int most, double seconds);
// The words after `rueda`. report: where its JSON goes.
std::vector<std::string> command_of(const Replay& replay, int steps, const std::string& report);

struct Measured {
  Replay replay;
  double compute_ms = 0;
  std::vector<double> step_ms = {};  // [repeats]; empty: nothing is measured yet
  std::string workload = "";         // of a program: what it exchanges and when, as a model's file
  std::string failed = "";           // why the last try gave nothing, a sentence
  [[nodiscard]] double median_ms() const;
  [[nodiscard]] double spread() const;  // between the fastest and the slowest repeat, relative to the median
};

// The hosts of a replay: all on one machine with so many cores.
Cluster replay_cluster(const Replay& replay, int cores, const Costs& costs, double latency_us);
Result<double> predicted_ms(const Measured& measured, int cores, const Costs& costs, double latency_us);

struct Calibration {
  Costs costs;
  double latency_us = 40;  // one way, between namespaces
  int tries = 0;
};
// How far a fit is. error: of the best one so far, the root of the mean square of the relative errors.
struct FitProgress {
  int tries = 0, most = 0;
  double error = 0;
};
using FitWatch = std::function<void(const FitProgress&)>;
// Changes one number after the other as long as the squares of the relative errors become smaller: five
// costs, the latency and, with many replays, the payload of a link. watch is told after each try.
Result<Calibration> fit(std::span<const Measured> fitted, int cores, const Calibration& begin,
                        bool fits_payload = true, const FitWatch& watch = {});

struct Errors {  // of what was not fitted
  double median = 0, p95 = 0;
  int rows = 0, pairs = 0, right = 0;  // pairs: of replays of a model; right: the better one is named
};

struct Validation {
  Calibration calibration;
  int cores = 0;
  std::vector<Measured> measured;
  std::vector<double> predicted_ms = {};  // [measured]; 0: nothing is measured there
  // What was asked, so that a validation that was interrupted can go on.
  bool is_complete = true, is_quick = false;
  int repeats = 1, steps = 5;
  double replay_s = 18;  // within which a replay shall end
  std::string program = "";
};
Errors errors_of(const Validation& validation);
std::string page(const Validation& validation);
std::string json(const Validation& validation);
// From what json() has made. path is for messages only.
Result<Validation> parse_validation(const std::string& json, const std::string& path);
// A cluster's file with the fitted costs.
std::string costs_json(const Validation& validation);

}  // namespace rueda::simulate
