// Starts replays and training programs in network namespaces, and reads what their timelines say. Starts
// processes; one thread.
#pragma once

#include <string>
#include <vector>

#include "rueda/base/status.h"
#include "simulate/validation.h"

namespace rueda::simulate {

struct TrainingRun {
  std::string binary;  // the rueda command
  std::string folder;  // for what is of no use later

  // Runs `rueda WORDS…` to its end. settings: "NAME=value", for this run.
  [[nodiscard]] Status start(std::vector<std::string> words, const std::vector<std::string>& settings) const;
  // A training program: its workload from a run on one host, once, and then its step between the hosts.
  [[nodiscard]] Status measure(Measured& measured) const;
};

}  // namespace rueda::simulate
