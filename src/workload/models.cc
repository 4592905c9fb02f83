#include "workload/models.h"

#include <algorithm>
#include <array>
#include <utility>

namespace rueda::workload {

namespace {

constexpr std::array<std::pair<std::string_view, Collective>, 5> kCollectives = {
    {{"allreduce", Collective::kAllreduce},
     {"allgather", Collective::kAllgather},
     {"reducescatter", Collective::kReducescatter},
     {"alltoall", Collective::kAlltoall},
     {"broadcast", Collective::kBroadcast}}};

}  // namespace

std::optional<Collective> find_collective(std::string_view name) {
  const auto at = std::ranges::find(kCollectives, name, &std::pair<std::string_view, Collective>::first);
  return at == kCollectives.end() ? std::nullopt : std::optional(at->second);
}

std::string_view operation_of(Collective what) {
  const auto at = std::ranges::find(kCollectives, what, &std::pair<std::string_view, Collective>::second);
  return at == kCollectives.end() ? "" : at->first;
}

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

std::vector<Submission> submissions_of(const Model& model) {
  std::vector<Submission> all;
  for (size_t i = 0; i < model.exchanges.size(); ++i)
    all.push_back({.at_ms = model.exchanges[i].at_ms, .is_exchange = true, .index = i});
  const std::vector<double> ready = model.ready_ms();
  for (size_t i = 0; i < ready.size(); ++i) all.push_back({.at_ms = ready[i], .index = i});
  std::ranges::stable_sort(all, {}, &Submission::at_ms);
  return all;
}

Model stretched(Model model, double compute_ms, double factor) {
  const double whole = factor * (compute_ms > 0 ? compute_ms / model.compute_ms : 1);
  model.compute_ms *= whole;
  for (double& ready : model.stated_ready_ms) ready *= whole;
  for (Exchange& exchange : model.exchanges) exchange.at_ms *= whole;
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
