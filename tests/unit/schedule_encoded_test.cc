#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "rueda/schedule/algorithm.h"
#include "rueda/schedule/verify.h"
#include "schedule_cases.h"

namespace rueda::schedule {
namespace {

// blocks: of each owner, repeated as often as there are ranks.
Spec encoded_spec(Rank n, const std::vector<int64_t>& blocks, Wire wire = Wire::kInt8) {
  Spec spec;
  spec.wire = wire;
  for (Rank rank = 0; rank < n; ++rank)
    spec.counts.push_back(blocks[static_cast<size_t>(rank) % blocks.size()] * kWireBlock);
  spec.count = std::accumulate(spec.counts.begin(), spec.counts.end(), int64_t{0});
  return spec;
}

const Algorithm& encoded() { return *find_algorithm(Collective::kAllreduce, "encoded"); }

Report verified(const Spec& spec, const Topology& topology) {
  const Result<Report> report = verify(spec, topology, encoded());
  EXPECT_TRUE(report.is_ok()) << report.status().why;
  return report.is_ok() ? report.value() : Report();
}

TEST(Encoded, GivesTheCanonicalSumOnEveryLayoutAtAnyChunkSize) {
  for (Rank n = 2; n <= 16; ++n) {
    for (Topology topology : layouts(n)) {
      if (topology.is_single_host()) continue;
      for (const int64_t chunk_bytes : {100, 3000, 1 << 20}) {
        topology.chunk_bytes = chunk_bytes;
        for (const auto& blocks : std::vector<std::vector<int64_t>>{{1}, {0, 5, 2}, {3, 0, 0, 0, 1}}) {
          SCOPED_TRACE(std::to_string(n) + " ranks, chunks of " + std::to_string(chunk_bytes));
          verified(encoded_spec(n, blocks), topology);
        }
      }
    }
  }
}

TEST(Encoded, SendsTheBytesOfTheFormula) {
  for (const Wire wire : {Wire::kInt8, Wire::kBfloat16, Wire::kFloat16}) {
    for (const int32_t hosts : {2, 3, 4, 8}) {
      const Spec spec = encoded_spec(hosts, {4}, wire);
      const int64_t encoded_bytes = spec.count / kWireBlock * wire_block_bytes(wire);
      for (const RankTotals& totals : verified(spec, Topology::regular(hosts, 1)).ranks)
        EXPECT_EQ(totals.bytes_sent, 2 * (hosts - 1) * encoded_bytes / hosts);
    }
  }
}

TEST(Encoded, RunsForWireTypesAndForNothingElse) {
  const Topology topology = Topology::regular(4, 2);
  Spec spec = encoded_spec(8, {64});
  EXPECT_EQ(choose(spec, topology, "").value().algorithm->name, "encoded");
  EXPECT_EQ(choose(spec, topology, "ring").value().algorithm->name, "encoded");
  EXPECT_FALSE(choose(spec, Topology::single_host(8), "").is_ok());
  spec.wire = Wire::kExact;
  spec.counts.clear();
  EXPECT_NE(choose(spec, topology, "encoded").value().algorithm->name, "encoded");
}

TEST(Encoded, CostsMoreWithMoreBytesAndLessInFewerBitsAndBoundsItsSteps) {
  const Topology topology = Topology::regular(4, 2);
  const auto cost = [&](int64_t blocks, Wire wire) {
    return *encoded().cost_us(encoded_spec(8, {blocks}, wire), topology);
  };
  EXPECT_GT(cost(1000, Wire::kInt8), cost(1, Wire::kInt8));
  EXPECT_GT(cost(1000, Wire::kBfloat16), cost(1000, Wire::kInt8));
  const Spec huge = encoded_spec(8, {int64_t{1} << 25});
  EXPECT_LE(encoded().build(huge, topology, 3).steps.size(), size_t{1} << 17);
}

TEST(Encoded, SpecsThatNoOwnersFitAreRefused) {
  Spec spec = encoded_spec(4, {2});
  EXPECT_TRUE(check_spec(spec, 4).is_ok());
  spec.count += kWireBlock;
  EXPECT_FALSE(check_spec(spec, 4).is_ok());
  spec = encoded_spec(4, {2});
  spec.op = ReduceOp::kMin;
  EXPECT_FALSE(check_spec(spec, 4).is_ok());
  spec = encoded_spec(4, {2});
  spec.counts[1] -= 1;
  spec.counts[2] += 1;
  EXPECT_FALSE(check_spec(spec, 4).is_ok());
}

std::vector<Schedule> schedules_of(const Spec& spec, const Topology& topology) {
  std::vector<Schedule> schedules;
  for (Rank rank = 0; rank < topology.size(); ++rank)
    schedules.push_back(encoded().build(spec, topology, rank));
  return schedules;
}

TEST(Encoded, TheVerifierSeesAnOwnerThatKeepsItsOwnSum) {
  const Topology topology = Topology::regular(2, 1);
  const Spec spec = encoded_spec(2, {1});
  std::vector<Schedule> schedules = schedules_of(spec, topology);
  for (Step& step : schedules[0].steps)
    if (step.kind == StepKind::kFinish && step.to.begin == 0) step.from = {Buffer::kScratch, 0, kWireBlock};
  EXPECT_FALSE(verify_schedules(spec, topology, schedules, true).is_ok());
}

TEST(Encoded, TheVerifierSeesASumThatIsEncodedInTheWrongPlace) {
  const Topology topology = Topology::regular(2, 1);
  const Spec spec = encoded_spec(2, {2});
  std::vector<Schedule> schedules = schedules_of(spec, topology);
  const auto first = std::ranges::find(schedules[0].steps, StepKind::kEncode, &Step::kind);
  first->from.begin = (first->from.begin + 2 * kWireBlock) % spec.count;
  EXPECT_FALSE(verify_schedules(spec, topology, schedules, true).is_ok());
}

}  // namespace
}  // namespace rueda::schedule
