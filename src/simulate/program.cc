#include <cmath>
#include <numbers>

#include "simulate/program.h"

namespace rueda::simulate {
namespace {

// The same numbers on every machine, which std::normal_distribution does not promise.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  double normal() {  // Box and Muller
    const double u = (static_cast<double>(next() >> 11) + 1) / 9007199254740993.0;
    const double v = static_cast<double>(next() >> 11) / 9007199254740992.0;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  }

 private:
  uint64_t state_;
};

}  // namespace

Nanos Program::forward() const {
  Nanos sum = 0;
  for (const Gradient& gradient : gradients) sum += gradient.forward;
  return sum;
}

Program program_of(const workload::Model& model, bool cross_step) {
  const auto nanos_of_ms = [](double ms) { return static_cast<Nanos>(ms * 1e6); };
  Program program{.gradients = {},
                  .exchanges = {},
                  .submissions = {},
                  .compute = nanos_of_ms(model.compute_ms),
                  .cross_step = cross_step};
  const std::vector<double> ready = model.ready_ms(), needed = model.needed_ms();
  for (size_t i = 0; i < model.parameters.size(); ++i) {  // the forward pass comes to the last one first
    const double next = i == 0 ? model.forward_ms() : needed[i - 1];
    program.gradients.push_back({.name = model.parameters[i].name,
                                 .count = model.parameters[i].count,
                                 .ready = nanos_of_ms(ready[i]),
                                 .forward = nanos_of_ms(next - needed[i])});
  }
  for (const workload::Exchange& one : model.exchanges)
    program.exchanges.push_back({.what = one.what, .count = one.count});
  for (const workload::Submission& one : workload::submissions_of(model))
    program.submissions.push_back({.at = nanos_of_ms(one.at_ms),
                                   .piece = one.index + (one.is_exchange ? model.parameters.size() : 0),
                                   .is_awaited = one.is_exchange && model.exchanges[one.index].is_awaited});
  return program;
}

std::vector<double> noise_of(const Noise& noise, int rank, int steps) {
  Random random(noise.seed * 0x9e3779b9 + static_cast<uint64_t>(rank));
  const double own = noise.rank * random.normal();
  std::vector<double> factors;
  for (int i = 0; i < steps; ++i) factors.push_back(std::exp(own + noise.step * random.normal()));
  return factors;
}

}  // namespace rueda::simulate
