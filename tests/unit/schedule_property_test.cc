// Random specs and topologies: every algorithm that is chosen or could be forced is right, and all ranks
// choose the same one.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>

#include "rueda/schedule/verify.h"
#include "schedule_cases.h"

namespace rueda::schedule::property_test {
namespace {

// Dense host indices in order of first rank, as a Topology holds them.
Topology any_topology() {
  const auto size = *rc::gen::inRange(1, 13);
  std::vector<int32_t> dense;
  std::vector<int32_t> names;
  for (int rank = 0; rank < size; ++rank) {
    const int32_t name = *rc::gen::inRange(0, 5);
    auto place = std::find(names.begin(), names.end(), name);
    if (place == names.end()) place = names.insert(names.end(), name);
    dense.push_back(static_cast<int32_t>(place - names.begin()));
  }
  Topology topology = hosts_of(dense);
  topology.chunk_bytes = *rc::gen::inRange<int64_t>(1, 2000);
  return topology;
}

std::vector<int64_t> any_counts(size_t how_many) {
  return *rc::gen::container<std::vector<int64_t>>(how_many, rc::gen::inRange<int64_t>(0, 200));
}

Spec any_spec(Rank n) {
  Spec spec;
  spec.what = *rc::gen::element(Collective::kAllreduce, Collective::kAllgather, Collective::kBroadcast,
                                Collective::kReducescatter, Collective::kAlltoall);
  spec.dtype =
      *rc::gen::element(DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64, DType::kUint8);
  const bool may_be_adasum = spec.what == Collective::kAllreduce && is_floating(spec.dtype);
  spec.op = *rc::gen::element(ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kProduct,
                              may_be_adasum ? ReduceOp::kAdasum : ReduceOp::kMax);
  spec.scale.divisor = *rc::gen::inRange<int64_t>(1, 3);
  spec.count = *rc::gen::inRange<int64_t>(0, 3000);
  const auto ranks = static_cast<size_t>(n);
  if (spec.what == Collective::kBroadcast) spec.root = *rc::gen::inRange<Rank>(0, n);
  if (spec.what == Collective::kAllgather || spec.what == Collective::kReducescatter)
    spec.counts = any_counts(ranks);
  if (spec.what == Collective::kAlltoall) spec.counts = any_counts(ranks * ranks);
  if (spec.what == Collective::kReducescatter)
    spec.count = std::accumulate(spec.counts.begin(), spec.counts.end(), int64_t{0});
  return spec;
}

TEST(schedule_property, every_algorithm_that_serves_a_random_call_is_right) {
  EXPECT_TRUE(rc::check([] {
    const Topology topology = any_topology();
    const Spec spec = any_spec(topology.size());
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.what != spec.what || !algorithm.cost_us(spec, topology)) continue;
      const auto report = verify(spec, topology, algorithm);
      if (!report.is_ok()) RC_FAIL(report.status().why + "\n" + describe(spec, topology));
    }
  }));
}

TEST(schedule_property, equal_values_give_equal_choices_and_schedules) {
  EXPECT_TRUE(rc::check([] {
    const Topology topology = any_topology();
    const Spec spec = any_spec(topology.size());
    const Topology topology_elsewhere = topology;
    const Spec spec_elsewhere = spec;
    const auto here = choose(spec, topology, "");
    const auto there = choose(spec_elsewhere, topology_elsewhere, "");
    RC_ASSERT(here.is_ok());
    RC_ASSERT(there.is_ok());
    RC_ASSERT(here.value().algorithm == there.value().algorithm);
    RC_ASSERT(explain(spec, topology, "").value() == explain(spec_elsewhere, topology_elsewhere, "").value());
    RC_ASSERT(here.value().cost_us >= 0);
    const auto build = here.value().algorithm->build;
    RC_ASSERT(to_string(build(spec, topology, 0)) == to_string(build(spec_elsewhere, topology_elsewhere, 0)));
  }));
}

}  // namespace
}  // namespace rueda::schedule::property_test
