// The tuner of learned plans (control/tuner.h) in the engine: what it may do here, and what is said of it.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/config.h"
#include "rueda/control/tuner.h"
#include "rueda/runtime/session.h"

namespace rueda::runtime {

// The options that RUEDA_TUNE and its kin set. fusion_bytes: the largest bucket.
control::Tuner::Options tuner_options(const Session& session, int64_t fusion_bytes);

// Says what was tried in the log, and in the table that RUEDA_TUNE_LOG names: a row for each trial, and a
// last one that holds what is in use, as in Horovod's table, whose columns come first. Each trial replaces
// that last row, so that the table is whole whenever the job ends. A table that cannot be written is said
// once. Engine thread only.
class TuningReport {
 public:
  explicit TuningReport(const Config& config)
      : path_(config.tune_log),
        cycle_time_ms_(config.cycle_time_ms),
        is_hierarchical_(config.hierarchical_allreduce) {}
  void write(const std::vector<control::Tuner::News>& news, Nanos now);

 private:
  void open(Nanos now);
  struct Row {
    control::Tuner::Choice choice;
    double usual_ms = 0;                     // of a step that runs so
    double step_ms = 0;                      // of one that runs as was best at that time
    std::optional<double> gain_percent = 0;  // none: not measured
    bool is_kept = false;
  };
  void add_rows(const control::Tuner::News& news, Nanos now);
  void put(const Row& row, int64_t bytes, double seconds);

  std::string path_;
  double cycle_time_ms_;
  bool is_hierarchical_;
  std::ofstream table_;
  std::streampos last_row_;
  Nanos began_ = 0;
};

}  // namespace rueda::runtime
