// Calls with a wire type, on random wires: what all ranks get, and what is kept for later calls, is compared
// with a model in one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "../sanitizers.h"
#include "backend_fake_mesh.h"
#include "wire_reference.h"

namespace rueda::backend_test::backend_encoded_test {
namespace {

using schedule::Topology;
using Floats = std::vector<float>;

size_t whole_blocks(size_t count) {
  constexpr auto kBlock = static_cast<size_t>(kWireBlock);
  return (count + kBlock - 1) / kBlock * kBlock;
}

// A tensor of a job: what each rank has of it, and what the model says.
struct Named {
  uint64_t name_hash = 0;
  size_t count = 0;
  std::vector<Floats> inputs, outputs, sent, owned;  // [rank]
  wire_test::Model model;
  Floats expected;
};

struct Job {
  Topology topology;
  Wire wire = Wire::kInt8;
  Scale scale;
  double prescale = 1.0;
  bool is_in_place = false;  // results replace the inputs
  std::mt19937_64 random;
  FakeMesh mesh;
  std::vector<Group> groups;
  std::vector<Named> tensors;
  backend::CallId next_call = 1;

  Job(Topology where, uint64_t seed, const backend::NativeOptions& options)
      : topology(where),
        random(seed),
        mesh(std::move(where), seed % 2 ? WireKind::kBuffered : WireKind::kRendezvous, seed, options) {
    for (Rank me = 0; me < size(); ++me) groups.push_back(mesh.world(me));
    wire = static_cast<Wire>(1 + seed % 3);
  }
  [[nodiscard]] Rank size() const { return topology.size(); }
  [[nodiscard]] size_t ranks() const { return static_cast<size_t>(size()); }

  void add_tensor(size_t count) {
    Named& tensor = tensors.emplace_back();
    tensor.name_hash = random();
    tensor.count = count;
    tensor.inputs.assign(ranks(), Floats(count));
    tensor.outputs.assign(ranks(), Floats(count));
    tensor.sent.assign(ranks(), Floats(whole_blocks(count), 0.0F));
    tensor.owned = tensor.sent;
    tensor.model.wire = wire;
  }

  void fill(Named& tensor, bool has_nan) {
    std::normal_distribution<float> normal(0, 1);
    for (Floats& input : tensor.inputs)
      for (float& value : input) value = normal(random);
    if (has_nan) tensor.inputs[random() % ranks()][random() % tensor.count] = std::nanf("");
  }

  // The exact sum of each host, in rank order.
  [[nodiscard]] std::vector<Floats> partials(const Named& tensor) const {
    std::vector<Floats> sums;
    for (const std::vector<Rank>& host : topology.members()) {
      Floats sum(tensor.count);
      for (size_t i = 0; i < tensor.count; ++i) {
        for (const Rank rank : host) {
          const float mine = tensor.inputs[static_cast<size_t>(rank)][i] * static_cast<float>(prescale);
          sum[i] = rank == host.front() ? mine : sum[i] + mine;
        }
      }
      sums.push_back(std::move(sum));
    }
    return sums;
  }
  void expect(Named& tensor) {
    tensor.expected = tensor.model.sum(partials(tensor));
    if (scale.is_identity()) return;
    for (float& value : tensor.expected)
      value = value / static_cast<float>(scale.divisor) * static_cast<float>(scale.factor);
  }

  TestCall call(Rank me, const std::vector<size_t>& bucket, bool may_be_cancelled) {
    const auto rank = static_cast<size_t>(me);
    TestCall made{.id = next_call, .group = &groups[rank], .spec = {}};
    made.spec.scale = scale;
    made.spec.wire = wire;
    made.prescale = prescale;
    made.may_be_cancelled = may_be_cancelled;
    for (const size_t which : bucket) {
      Named& tensor = tensors[which];
      made.spec.count += static_cast<int64_t>(tensor.count);
      made.segments.push_back({.input = tensor.inputs[rank].data(),
                               .output = (is_in_place ? tensor.inputs : tensor.outputs)[rank].data(),
                               .count = static_cast<int64_t>(tensor.count),
                               .name_hash = tensor.name_hash,
                               .residual = {tensor.sent[rank].data(), tensor.owned[rank].data()}});
    }
    return made;
  }

  void run(const std::vector<size_t>& bucket) {
    for (const size_t which : bucket) expect(tensors[which]);
    for (Rank me = 0; me < size(); ++me) mesh.backend(me).start(call(me, bucket, random() % 2 == 0));
    ++next_call;
    ASSERT_TRUE(mesh.run());
    take_done();
    for (const size_t which : bucket)
      for (const Floats& output : is_in_place ? tensors[which].inputs : tensors[which].outputs)
        ASSERT_TRUE(wire_test::is_equal_bits(output, tensors[which].expected)) << "tensor " << which;
  }

  // Some ranks start the call and one never does. The residuals are back at once, for the next call.
  void cancel(const std::vector<size_t>& bucket) {
    const std::vector<Named> before = tensors;
    const auto absent = static_cast<Rank>(random() % ranks());
    for (Rank me = 0; me < size(); ++me)
      if (me != absent) mesh.backend(me).start(call(me, bucket, true));
    mesh.shake(static_cast<int>(random() % 60));
    std::vector<std::vector<int32_t>> sent(ranks());
    for (Rank me = 0; me < size(); ++me)
      if (me != absent) sent[static_cast<size_t>(me)] = mesh.backend(me).pause(next_call);
    for (Rank me = 0; me < size(); ++me) {
      std::vector<int32_t> arrivals(ranks(), 0);
      for (size_t from = 0; from < ranks(); ++from)
        if (!sent[from].empty()) arrivals[from] = sent[from][static_cast<size_t>(me)];
      if (me == absent)
        mesh.backend(me).discard(call(me, bucket, true), arrivals);
      else
        mesh.backend(me).cancel(next_call, arrivals);
    }
    for (const size_t which : bucket) {
      ASSERT_EQ(tensors[which].sent, before[which].sent);
      ASSERT_EQ(tensors[which].owned, before[which].owned);
    }
    ++next_call;
    ASSERT_TRUE(mesh.run());
    take_done();
  }
  void take_done() {
    for (Rank me = 0; me < size(); ++me) {
      ASSERT_EQ(mesh.done(me).size(), 1U);
      ASSERT_TRUE(mesh.done(me)[0].status.is_ok()) << mesh.done(me)[0].status.why;
      mesh.done(me).clear();
    }
    ASSERT_TRUE(mesh.are_wires_empty());
  }

  // Each element is kept by one rank of a host, and each result by one rank.
  void expect_residuals() const {
    const auto total = [&](const std::vector<Floats>& all, const std::vector<Rank>& of, size_t i) {
      float sum = 0;
      for (const Rank rank : of) sum += all[static_cast<size_t>(rank)][i];
      return sum;
    };
    for (const Named& tensor : tensors) {
      if (tensor.model.owned.empty()) continue;
      for (size_t i = 0; i < tensor.count; ++i) {
        const std::vector<std::vector<Rank>> hosts = topology.members();
        for (size_t host = 0; host < hosts.size(); ++host)
          ASSERT_EQ(total(tensor.sent, hosts[host], i), tensor.model.sent[host][i]) << "element " << i;
        ASSERT_EQ(total(tensor.owned, groups[0].members, i), tensor.model.owned[i]) << "element " << i;
      }
    }
  }
};

// Some of the tensors, in a random order, in random buckets.
std::vector<std::vector<size_t>> random_buckets(size_t tensors, std::mt19937_64& random) {
  std::vector<size_t> order(tensors);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::shuffle(order, random);
  order.resize(1 + random() % tensors);
  std::vector<std::vector<size_t>> buckets(1);
  for (const size_t tensor : order) {
    if (random() % 3 == 0 && !buckets.back().empty()) buckets.emplace_back();
    buckets.back().push_back(tensor);
  }
  return buckets;
}

Topology random_hosts(std::mt19937_64& random) {
  const auto hosts = static_cast<int32_t>(2 + random() % 3);
  Topology topology = Topology::regular(hosts, static_cast<Rank>(1 + random() % 3));
  if (random() % 3 == 0) topology.host_of.push_back(static_cast<int32_t>(random() % 2));  // uneven
  if (random() % 4 == 0) std::ranges::rotate(topology.host_of, topology.host_of.begin() + 1);
  std::vector<int32_t> dense;  // in the order of a host's first rank
  for (int32_t& host : topology.host_of) {
    const auto at = std::ranges::find(dense, host);
    const auto index = static_cast<int32_t>(at - dense.begin());
    if (at == dense.end()) dense.push_back(host);
    host = index;
  }
  return topology;
}

void run_program(uint64_t seed) {
  std::mt19937_64 random(seed);
  backend::NativeOptions options;
  options.chunk_bytes = std::array<int64_t, 4>{100, 1024, 5000, 256 << 10}[random() % 4];
  options.channels = 1 + random() % 2;
  Job job(random_hosts(random), seed, options);
  if (random() % 2 == 0) job.scale.divisor = job.size();
  if (random() % 3 == 0) job.prescale = 0.25;
  job.is_in_place = random() % 2 == 0;
  const size_t tensors = 1 + random() % 5;
  for (size_t i = 0; i < tensors; ++i) job.add_tensor(1 + random() % 3000);
  for (int step = 0; step < 4; ++step) {
    for (const std::vector<size_t>& bucket : random_buckets(tensors, job.random)) {
      for (const size_t which : bucket) job.fill(job.tensors[which], random() % 10 == 0);
      if (random() % 4 == 0) job.cancel(bucket);
      if (!testing::Test::HasFatalFailure()) job.run(bucket);
      if (testing::Test::HasFatalFailure()) return;
    }
    job.expect_residuals();
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(EncodedCalls, RandomProgramsGiveTheBitsAndTheResidualsOfAModelInOneProcess) {
  const uint64_t programs = RUEDA_UNDER_ASAN ? 60 : 400;
  for (uint64_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_program(seed);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(EncodedCalls, OneHostSumsExactly) {
  Job job(Topology::single_host(3), 3, {});
  job.add_tensor(2000);
  job.fill(job.tensors[0], false);
  for (Rank me = 0; me < 3; ++me) job.mesh.backend(me).start(job.call(me, {0}, false));
  ASSERT_TRUE(job.mesh.run());
  const Named& tensor = job.tensors[0];
  for (const Floats& output : tensor.outputs) EXPECT_EQ(output, job.partials(tensor)[0]);
  for (const Floats& sent : tensor.sent) EXPECT_EQ(sent, Floats(sent.size(), 0.0F));
}

TEST(EncodedCalls, ANanLeavesNoTraceInTheNextStep) {
  Job job(Topology::regular(2, 1), 2, {});
  job.add_tensor(600);
  job.fill(job.tensors[0], false);
  job.tensors[0].inputs[0][300] = std::numeric_limits<float>::infinity();
  job.run({0});
  for (size_t i = 0; i < 600; ++i) EXPECT_EQ(std::isnan(job.tensors[0].outputs[1][i]), i / 256 == 1);
  job.fill(job.tensors[0], false);
  job.run({0});
  for (const float value : job.tensors[0].outputs[1]) EXPECT_TRUE(std::isfinite(value));
}

TEST(EncodedCalls, WithoutMemoryForErrorsTheyAreDropped) {
  Job job(Topology::regular(2, 2), 5, {});
  job.add_tensor(700);
  for (int step = 0; step < 2; ++step) {
    job.fill(job.tensors[0], false);
    for (Rank me = 0; me < job.size(); ++me) {
      TestCall call = job.call(me, {0}, false);
      call.segments[0].residual = {};
      job.mesh.backend(me).start(call);
    }
    ASSERT_TRUE(job.mesh.run());
    job.tensors[0].model = {.wire = job.wire, .sent = {}, .owned = {}};
    job.expect(job.tensors[0]);
    for (const Floats& output : job.tensors[0].outputs)
      EXPECT_TRUE(wire_test::is_equal_bits(output, job.tensors[0].expected));
  }
}

TEST(EncodedCalls, AnAbortedCallLeavesTheResidualsOfTheCallBefore) {
  for (const Rank on_each_host : {1, 2}) {
    Job job(Topology::regular(3, on_each_host), 4, {});
    job.add_tensor(5000);
    job.fill(job.tensors[0], false);
    job.run({0});
    const Named before = job.tensors[0];
    job.fill(job.tensors[0], false);
    for (Rank me = 0; me < job.size(); ++me) job.mesh.backend(me).start(job.call(me, {0}, false));
    job.mesh.shake(20);
    size_t changed = 0;  // while the call runs, encoding replaces them
    for (size_t rank = 0; rank < job.ranks(); ++rank)
      changed += job.tensors[0].sent[rank] != before.sent[rank];
    EXPECT_GT(changed, 0U);
    for (Rank me = 0; me < job.size(); ++me)
      job.mesh.backend(me).abort({Code::kPeerLost, "the test ends it"});
    EXPECT_EQ(job.tensors[0].sent, before.sent);
    EXPECT_EQ(job.tensors[0].owned, before.owned);
  }
}

}  // namespace
}  // namespace rueda::backend_test::backend_encoded_test
