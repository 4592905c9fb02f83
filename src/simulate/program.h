// What the training loop of a rank does, as numbers: when its gradients are ready and when its step ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "workload/models.h"

namespace rueda::simulate {

struct Gradient {
  std::string name;
  int64_t count = 0;  // elements, float32
  Nanos ready = 0;    // from the beginning of the step's forward pass; not decreasing
  Nanos forward = 0;  // how long the forward pass computes with this tensor
};

struct Exchange {
  Collective what = Collective::kAlltoall;
  int64_t count = 0;  // elements of a rank's input, float32
};

// What a rank submits while it computes.
struct Submission {
  Nanos at = 0;             // of computing, from the beginning of the step
  size_t piece = 0;         // of the gradients, and then the exchanges
  bool is_awaited = false;  // before computing goes on
};

struct Program {
  std::vector<Gradient> gradients;      // in the order in which they become ready
  std::vector<Exchange> exchanges;      // none where steps cross
  std::vector<Submission> submissions;  // in their order
  Nanos compute = 0;                    // forward and backward
  bool cross_step =
      false;  // a step does not wait for its gradients; the next forward pass does, tensor by tensor

  [[nodiscard]] Nanos forward() const;  // the forward pass, which is the beginning of a step
};

Program program_of(const workload::Model& model, bool cross_step);

// How much longer than planned each step of each rank computes, by chance.
struct Noise {
  double step = 0;  // standard deviation of the logarithm from step to step
  double rank = 0;  // … and between ranks, the same in all steps
  uint64_t seed = 1;
};

// The factors of one rank: [steps].
std::vector<double> noise_of(const Noise& noise, int rank, int steps);

}  // namespace rueda::simulate
