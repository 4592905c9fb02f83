#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "rueda/schedule/algorithm.h"
#include "rueda/schedule/builder.h"

namespace rueda::schedule {
namespace {

template <class... Parts>
std::string join(const Parts&... parts) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1);
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
Status fault(const Spec& spec, const Parts&... why) {
  return {Code::kInvalidArgument, join(name_of(spec.what), ": ", why...)};
}

size_t counts_needed(Collective what, Rank size) {
  const auto n = static_cast<size_t>(size);
  if (what == Collective::kAlltoall) return n * n;
  return what == Collective::kAllgather || what == Collective::kReducescatter ? n : 0;
}

bool obeys_wire(const Algorithm& algorithm, const Spec& spec) {
  return algorithm.is_encoded == (spec.wire != Wire::kExact);
}

bool may_be_chosen(const Algorithm& algorithm, const Spec& spec, const Topology& topology) {
  return algorithm.what == spec.what && obeys_wire(algorithm, spec) &&
         is_order_preserving(algorithm, topology);
}

Status check_wire(const Spec& spec, int64_t sum) {
  if (spec.wire == Wire::kExact) return Status::ok();
  if (spec.what != Collective::kAllreduce || spec.op != ReduceOp::kSum || spec.dtype != DType::kFloat32)
    return fault(spec, "a wire type is for sums of float32");
  if (sum != spec.count) return fault(spec, "the owners have ", sum, " elements, the call has ", spec.count);
  for (const int64_t count : spec.counts)
    if (count % kWireBlock != 0) return fault(spec, "an owner has ", count, " elements, not whole blocks");
  return Status::ok();
}

// The forced algorithm, if it supports the call.
std::optional<Choice> find_forced(const Spec& spec, const Topology& topology, std::string_view forced) {
  const Algorithm* algorithm = forced.empty() ? nullptr : find_algorithm(spec.what, forced);
  if (algorithm == nullptr || !obeys_wire(*algorithm, spec)) return std::nullopt;
  const std::optional<double> cost = algorithm->cost_us(spec, topology);
  if (!cost) return std::nullopt;
  return Choice{.algorithm = algorithm, .cost_us = *cost};
}

// What tuning has found, as long as it keeps the guarantee and supports the call.
std::optional<Choice> find_tuned(const Spec& spec, const Topology& topology) {
  const size_t number = spec.tuning.algorithm;
  if (number == 0 || number > algorithms().size()) return std::nullopt;
  const Algorithm& algorithm = algorithms()[number - 1];
  if (!may_be_chosen(algorithm, spec, topology)) return std::nullopt;
  const std::optional<double> cost = algorithm.cost_us(spec, topology);
  if (!cost) return std::nullopt;
  return Choice{.algorithm = &algorithm, .cost_us = *cost};
}

}  // namespace

Topology tuned_for(const Spec& spec, Topology topology) {
  if (spec.tuning.chunk_bytes > 0) topology.chunk_bytes = spec.tuning.chunk_bytes;
  return topology;
}

Status check_spec(const Spec& spec, Rank size) {
  if (size < 1) return fault(spec, "the group is empty");
  if (spec.count < 0) return fault(spec, spec.count, " elements");
  const size_t needed =
      spec.wire == Wire::kExact ? counts_needed(spec.what, size) : static_cast<size_t>(size);
  if (spec.counts.size() != needed)
    return fault(spec, spec.counts.size(), " counts for ", size, " ranks, ", needed, " are needed");
  for (int64_t count : spec.counts)
    if (count < 0) return fault(spec, "a count of ", count);
  const int64_t sum = std::accumulate(spec.counts.begin(), spec.counts.end(), int64_t{0});
  if (spec.what == Collective::kReducescatter && sum != spec.count)
    return fault(spec, "the counts sum to ", sum, ", the input has ", spec.count, " elements");
  if (spec.what == Collective::kBroadcast && (spec.root < 0 || spec.root >= size))
    return fault(spec, "root ", spec.root, " is not in the group of ", size, " ranks");
  if (is_reduction(spec.what) && spec.op == ReduceOp::kAverage)
    return fault(spec, "Average arrives as Sum with a scale");
  if (spec.what == Collective::kReducescatter && spec.op == ReduceOp::kAdasum)
    return {Code::kUnsupported, "REDUCESCATTER: Adasum is for allreduce only; use Sum or Average"};
  return check_wire(spec, sum);
}

Result<Choice> choose(const Spec& spec, const Topology& topology, std::string_view forced) {
  if (Status status = check_spec(spec, topology.size()); !status.is_ok()) return status;
  if (const std::optional<Choice> choice = find_forced(spec, topology, forced)) return *choice;
  if (const std::optional<Choice> choice = find_tuned(spec, topology)) return *choice;
  Choice choice;
  for (const Algorithm& algorithm : algorithms()) {
    if (!may_be_chosen(algorithm, spec, topology)) continue;
    const auto cost = algorithm.cost_us(spec, topology);
    if (!cost || (choice.algorithm != nullptr && *cost >= choice.cost_us)) continue;
    choice = {.algorithm = &algorithm, .cost_us = *cost};
  }
  if (choice.algorithm == nullptr)
    return Status{Code::kUnsupported, join(name_of(spec.what), " has no algorithm for this call")};
  return choice;
}

Result<std::string> explain(const Spec& spec, const Topology& topology, std::string_view forced) {
  if (Status status = check_spec(spec, topology.size()); !status.is_ok()) return status;
  if (const std::optional<Choice> choice = find_forced(spec, topology, forced))
    return join(forced, ": ", choice->cost_us, " us, forced by name");
  std::string reason, candidates;
  if (!forced.empty()) {
    reason = find_algorithm(spec.what, forced) == nullptr
                 ? join(name_of(spec.what), " has no algorithm '", forced, "'")
                 : join("'", forced, "' does not support this call");
    reason += ", so the cost model decides; ";
  }
  for (const Algorithm& algorithm : algorithms()) {
    if (!may_be_chosen(algorithm, spec, topology)) continue;
    if (const auto cost = algorithm.cost_us(spec, topology))
      candidates += join(candidates.empty() ? "" : "; ", algorithm.name, ": ", *cost, " us");
  }
  if (candidates.empty())
    return Status{Code::kUnsupported, join(name_of(spec.what), " has no algorithm for this call")};
  return reason + candidates;
}

}  // namespace rueda::schedule
