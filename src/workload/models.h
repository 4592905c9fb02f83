// What a training step computes and exchanges: the gradients of a model, and when each is ready. Immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/status.h"
#include "rueda/base/types.h"

namespace rueda::workload {

struct Parameter {
  std::string name;
  int64_t count = 0;  // elements, float32
};

// What a training step exchanges besides the sums of gradients: the tokens of a mixture of experts, a sharded
// parameter, the rows of an embedding.
struct Exchange {
  std::string name;
  Collective what = Collective::kAlltoall;  // not kJoin, not kBarrier
  int64_t count = 0;       // elements of this rank's input, float32; alltoall: to all ranks together, evenly
  double at_ms = 0;        // of computing, from the beginning of the step
  bool is_awaited = true;  // computing goes on when it has ended; otherwise the end of the step waits for it
};
// What a part gets of so many elements, or rows, that are spread evenly: the first ones get the remainder.
inline int64_t part_of(int64_t count, int part, int parts) {
  return count / parts + (part < count % parts ? 1 : 0);
}
// "alltoall" and the like; nullopt: that is not the name of one.
std::optional<Collective> find_collective(std::string_view name);
std::string_view operation_of(Collective what);

// Relative standard deviations of the time that a step computes, each at least 0 and below 1.
struct Spread {
  double step = 0;  // from step to step of a rank
  double rank = 0;  // from rank to rank
};

struct Model {
  std::string name, source, compute_source;
  double compute_ms = 0;                     // forward and backward of one step
  std::vector<Parameter> parameters;         // in the order in which backward finishes their gradients
  std::vector<double> stated_ready_ms = {};  // "ready_ms" of the file: [parameters]; empty: it has none
  std::vector<Exchange> exchanges = {};      // in the order in which they begin
  std::optional<Spread> spread = {};
  int world = 0;  // ranks of the job from which it was taken; 0: of none

  [[nodiscard]] int64_t total() const;
  [[nodiscard]] int64_t bytes() const { return 4 * total(); }
  // [parameters]: when each gradient is ready, from the beginning of the step. What the file does not state
  // is even: backward takes the last two thirds of compute_ms, because it computes two gradients, for inputs
  // and for weights, and every tensor takes equally long.
  [[nodiscard]] std::vector<double> ready_ms() const;
  // The forward pass: a third of compute_ms, but no longer than until the first gradient is ready.
  [[nodiscard]] double forward_ms() const;
  // [parameters]: when the forward pass comes to each tensor, from its beginning. It takes for a layer what
  // backward takes, in proportion, in the opposite order; so the last of the parameters is needed at 0.
  [[nodiscard]] std::vector<double> needed_ms() const;
};

// What a rank submits in a step, in this order: gradients and exchanges. An exchange comes before a gradient
// of the same time, whose layer may need what it brings.
struct Submission {
  double at_ms = 0;  // of computing, from the beginning of the step
  bool is_exchange = false;
  size_t index = 0;  // of the exchanges, or of the parameters
};
std::vector<Submission> submissions_of(const Model& model);

// The earliest end of a step whose computing is stretched: a link that is never idle without need sends each
// gradient from when it is ready. Its exchanges are not counted.
double earliest_end_ms(const Model& model, double stretch, double ms_per_byte);

// The model with computing stretched: to compute_ms, where that is above 0, and then by a factor.
Model stretched(Model model, double compute_ms, double factor);

// path is for messages only. "total" in the file must be the sum of its counts.
Result<Model> parse_model(std::string_view json, std::string_view path);
// The text of a file that parse_model() reads; times in microseconds.
std::string text_of(const Model& model);
std::vector<std::string> model_names();  // the models that are built into this program
// Takes a name from model_names(), or the path of a JSON file (ending in ".json") of the same form.
Result<Model> find_model(const std::string& name_or_path);

}  // namespace rueda::workload
