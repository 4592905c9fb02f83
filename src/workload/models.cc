#include "workload/models.h"

#include <algorithm>

namespace rueda::workload {

int64_t Model::total() const {
  int64_t sum = 0;
  for (const Parameter& parameter : parameters) sum += parameter.count;
  return sum;
}

std::vector<double> Model::ready_ms() const {
  if (!stated_ready_ms.empty()) return stated_ready_ms;
  const auto count = static_cast<double>(parameters.size());
  const double forward = compute_ms / 3;
  std::vector<double> ready;
  for (size_t i = 1; i <= parameters.size(); ++i)
    ready.push_back(forward + (compute_ms - forward) * (static_cast<double>(i) / count));
  return ready;
}

double Model::forward_ms() const {
  const double third = compute_ms / 3;
  return stated_ready_ms.empty() ? third : std::min(third, stated_ready_ms.front());
}

std::vector<double> Model::needed_ms() const {
  const double forward = forward_ms();
  std::vector<double> needed = ready_ms();
  for (double& when : needed) when = forward * ((compute_ms - when) / (compute_ms - forward));
  return needed;
}

Model stretched(Model model, double compute_ms, double factor) {
  const double whole = factor * (compute_ms > 0 ? compute_ms / model.compute_ms : 1);
  model.compute_ms *= whole;
  for (double& ready : model.stated_ready_ms) ready *= whole;
  return model;
}

double earliest_end_ms(const Model& model, double stretch, double ms_per_byte) {
  const std::vector<double> ready = model.ready_ms();
  double end = 0;
  for (size_t i = 0; i < ready.size(); ++i) {
    const double bytes = 4 * static_cast<double>(model.parameters[i].count);
    end = std::max(end, stretch * ready[i]) + ms_per_byte * bytes;
  }
  return std::max(end, stretch * model.compute_ms);
}

}  // namespace rueda::workload
