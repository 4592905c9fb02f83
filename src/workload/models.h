// Gradient lists of published models, as data. Immutable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"

namespace rueda::workload {

struct Parameter {
  std::string name;
  int64_t count = 0;  // elements, float32
};

struct Model {
  std::string name, source, compute_source;
  double compute_ms = 0;              // forward and backward of one step
  std::vector<Parameter> parameters;  // in the order in which backward finishes their gradients
  [[nodiscard]] int64_t total() const;
  [[nodiscard]] int64_t bytes() const { return 4 * total(); }
};

// The earliest end of a step: gradients appear evenly during backward, and a link that is never idle without
// need sends each of them from then on.
double earliest_end_ms(const Model& model, double forward_ms, double backward_ms, double ms_per_byte);

// path is for messages only. "total" in the file must be the sum of its counts.
Result<Model> parse_model(std::string_view json, std::string_view path);
std::vector<std::string> model_names();  // the models that are built into this program
// Takes a name from model_names(), or the path of a JSON file (ending in ".json") of the same form.
Result<Model> find_model(const std::string& name_or_path);

}  // namespace rueda::workload
