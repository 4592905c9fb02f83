// Metrics as values: families with samples, and their two forms. Names and units follow Prometheus: base
// units (seconds, bytes), and _total at the end of a counter. Pure.
// Source of the text format: https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rueda/status/meters.h"

namespace rueda::status {

using Labels = std::vector<std::pair<std::string, std::string>>;

struct Sample {
  std::string suffix;  // of a histogram: "_bucket", "_sum", "_count"
  Labels labels;
  double value = 0;
};

struct Family {
  std::string name, help, type;  // type: counter, gauge, histogram
  std::vector<Sample> samples;
};

// What is true only now, besides the meters.
struct Gauges {
  int64_t in_flight = 0;  // operations
  int64_t resident_bytes = 0;
  bool is_initialized = false;
  bool is_healthy = false;
  bool has_plan = false;
  int64_t rank = -1, size = 0;
};

std::vector<Family> families_of(const Meters& meters, const Gauges& gauges);
// labels are added to each sample.
std::string prometheus_text(const std::vector<Family>& families, const Labels& labels);
// {"name": {"type", "help", "samples": [{"suffix", "labels": {}, "value"}]}}
std::string metrics_json(const std::vector<Family>& families);

}  // namespace rueda::status
