// The tuner of learned plans (control/tuner.h) in the engine: what it may do here, and what is said of it.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/control/tuner.h"
#include "rueda/runtime/session.h"

namespace rueda::runtime {

// As RUEDA_TUNE has it. fusion_bytes: of one bucket at most.
control::Tuner::Options tuner_options(const Session& session, int64_t fusion_bytes);

// Says what was tried in the log, and in the table that RUEDA_TUNE_LOG names. A table that cannot be written
// is said once. Engine thread only.
class TuningReport {
 public:
  explicit TuningReport(std::string path) : path_(std::move(path)) {}
  void write(const std::vector<control::Tuner::News>& news, Nanos now);

 private:
  void open(Nanos now);

  std::string path_;
  std::ofstream table_;
  Nanos began_ = 0;
};

}  // namespace rueda::runtime
