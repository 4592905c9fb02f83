// Every algorithm of the registry, executed on every kind of wire and compared with the definition of its
// collective, element by element: bit for bit if the algorithm promises an order or the type does not round.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <numeric>

#include "backend_fake_mesh.h"
#include "kernels_reference.h"
#include "rueda/kernels/kernels.h"
#include "rueda/schedule/algorithm.h"

namespace rueda::backend_test {
namespace {

using kernels_test::combine_one;
using kernels_test::Element;
using kernels_test::same_element;
using kernels_test::scale_one;
using kernels_test::with_type;
using schedule::Algorithm;
using schedule::Spec;
using schedule::Topology;

// The hosts of a world: sizes that are and are not regular, powers of two, primes.
std::vector<Topology> topologies() {
  std::vector<Topology> all;
  for (Rank n = 1; n <= 5; ++n) all.push_back(Topology::single_host(n));
  all.push_back(Topology::regular(2, 2));
  all.push_back(Topology::regular(3, 1));
  all.push_back(Topology::regular(2, 3));
  Topology uneven = Topology::single_host(5);
  uneven.host_of = {0, 0, 0, 1, 1};
  all.push_back(uneven);
  return all;
}

std::string describe(const Topology& topology) {
  std::string text = "hosts";
  for (const int32_t host : topology.host_of) text += " " + std::to_string(host);
  return text;
}

struct Case {
  const Algorithm* algorithm;
  WireKind kind;
};

class EveryAlgorithm : public testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] const Algorithm& algorithm() const { return *GetParam().algorithm; }
  // Runs spec on all ranks. in and out hold one byte vector per rank. Returns false if the algorithm does not
  // serve the spec.
  bool run(const Topology& topology, const Spec& spec, std::vector<std::vector<std::byte>>& in,
           std::vector<std::vector<std::byte>>& out, bool in_place);
  void reductions(const Topology& topology, DType dtype, ReduceOp op, int64_t count, const Scale& scale);
  template <DType kType>
  void reduction_of(const Topology& topology, Spec spec);
  void check_moves(const Topology& topology, Spec spec);

  // An algorithm that serves nothing would pass every comparison.
  void TearDown() override { EXPECT_GT(runs_, 0) << "no spec was served"; }

  uint64_t seed_ = 20261121;
  int runs_ = 0;
};

class ReducingAlgorithm : public EveryAlgorithm {};
class MovingAlgorithm : public EveryAlgorithm {};
class AdasumAlgorithm : public EveryAlgorithm {};

bool is_adasum(const Algorithm& algorithm) { return algorithm.name == "adasum"; }
bool is_reducing(const Algorithm& algorithm) {
  const Collective what = algorithm.what;
  return (what == Collective::kAllreduce || what == Collective::kReducescatter) && !is_adasum(algorithm);
}
bool is_moving(const Algorithm& algorithm) { return !is_reducing(algorithm) && !is_adasum(algorithm); }

// Encoded calls round what they sum: backend_encoded_test.cc defines their results.
std::vector<Case> cases(bool (*is_wanted)(const Algorithm&)) {
  std::vector<Case> all;
  for (const Algorithm& algorithm : schedule::algorithms())
    for (const WireKind kind : {WireKind::kRendezvous, WireKind::kBuffered})
      if (!algorithm.is_encoded && is_wanted(algorithm)) all.push_back({&algorithm, kind});
  return all;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const Algorithm& algorithm = *info.param.algorithm;
  return std::string(name_of(algorithm.what)) + "_" + std::string(algorithm.name) + "_" +
         (info.param.kind == WireKind::kRendezvous ? "rendezvous" : "buffered");
}

INSTANTIATE_TEST_SUITE_P(Backend, ReducingAlgorithm, testing::ValuesIn(cases(is_reducing)), case_name);
INSTANTIATE_TEST_SUITE_P(Backend, MovingAlgorithm, testing::ValuesIn(cases(is_moving)), case_name);
INSTANTIATE_TEST_SUITE_P(Backend, AdasumAlgorithm, testing::ValuesIn(cases(is_adasum)), case_name);

bool EveryAlgorithm::run(const Topology& topology, const Spec& spec, std::vector<std::vector<std::byte>>& in,
                         std::vector<std::vector<std::byte>>& out, bool in_place) {
  if (!algorithm().cost_us(spec, topology).has_value()) return false;
  backend::NativeOptions options;
  options.chunk_bytes = 256;  // so that a thousand elements make many chunks
  options.maker = [this](const Spec& asked, const Topology& where, Rank me) -> Result<schedule::Schedule> {
    return algorithm().build(asked, where, me);
  };
  ++seed_;
  ++runs_;
  FakeMesh mesh(topology, GetParam().kind, seed_, options);
  std::vector<Group> groups;
  for (Rank me = 0; me < mesh.size(); ++me) groups.push_back(mesh.world(me));
  for (Rank me = 0; me < mesh.size(); ++me) {
    if (in_place) out[me] = in[me];
    const std::byte* input = in_place ? out[me].data() : in[me].data();
    mesh.backend(me).start(
        {.id = 1, .group = &groups[me], .spec = spec, .input = input, .output = out[me].data()});
  }
  EXPECT_TRUE(mesh.run()) << "stuck with seed " << seed_;
  EXPECT_TRUE(mesh.are_wires_empty());
  for (Rank me = 0; me < mesh.size(); ++me) {
    EXPECT_EQ(mesh.done(me).size(), 1u);
    for (const backend::Done& done : mesh.done(me))
      EXPECT_TRUE(done.status.is_ok()) << done.status.to_string();
  }
  return true;
}

template <class T>
std::vector<T> elements_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Inside each host from the first rank to the last. Then the hosts by a tree: first pairs of the first hosts,
// until their number is a power of two, then neighbours.
template <DType kType>
typename Element<kType>::Acc canonical(ReduceOp op, const Topology& topology,
                                       const std::vector<typename Element<kType>::Acc>& terms) {
  using Acc = typename Element<kType>::Acc;
  std::map<int32_t, Acc> hosts;
  for (size_t rank = 0; rank < terms.size(); ++rank) {
    const auto [at, is_first] = hosts.try_emplace(topology.host_of[rank], terms[rank]);
    if (!is_first) at->second = combine_one(op, kType == DType::kBool, at->second, terms[rank]);
  }
  std::vector<Acc> sums;
  for (const auto& [host, sum] : hosts) sums.push_back(sum);
  size_t goal = std::bit_floor(sums.size());
  for (; sums.size() > 1; goal = sums.size() / 2) {
    if (goal == sums.size()) goal /= 2;
    for (size_t first = 0; sums.size() > goal; ++first) {
      sums[first] = combine_one(op, kType == DType::kBool, sums[first], sums[first + 1]);
      sums.erase(sums.begin() + static_cast<std::ptrdiff_t>(first) + 1);
    }
  }
  return sums.front();
}

// Signed values of a few binades; no NaN or infinity, so that tolerances mean something.
template <DType kType>
typename Element<kType>::Raw random_value(std::mt19937_64& random) {
  using E = Element<kType>;
  if constexpr (kType == DType::kBool) return static_cast<uint8_t>(random() & 1);
  if constexpr (std::is_floating_point_v<typename E::Acc>) {
    const auto mantissa = static_cast<double>(static_cast<int32_t>(random())) / 2147483648.0;
    return E::narrow(static_cast<typename E::Acc>(std::ldexp(mantissa, static_cast<int>(random() % 8) - 2)));
  } else {
    return static_cast<typename E::Raw>(random());
  }
}

template <DType kType>
void EveryAlgorithm::reduction_of(const Topology& topology, Spec spec) {
  using E = Element<kType>;
  using Raw = typename E::Raw;
  const Rank n = topology.size();
  std::mt19937_64 random(seed_);
  std::vector<std::vector<Raw>> values(n);
  for (auto& each : values)
    for (int64_t i = 0; i < spec.count; ++i) each.push_back(random_value<kType>(random));
  std::vector<Raw> want(spec.count);
  std::vector<double> magnitude(spec.count);  // what rounding errors are relative to
  for (int64_t i = 0; i < spec.count; ++i) {
    std::vector<typename E::Acc> terms;
    for (Rank rank = 0; rank < n; ++rank) {
      terms.push_back(E::widen(values[rank][i]));
      magnitude[i] += std::abs(static_cast<double>(terms.back()));
    }
    want[i] =
        E::narrow(scale_one(spec.scale, kType == DType::kBool, canonical<kType>(spec.op, topology, terms)));
  }
  const bool is_exact = schedule::is_order_preserving(algorithm(), topology) || !is_floating(kType) ||
                        spec.op == ReduceOp::kMin || spec.op == ReduceOp::kMax || n < 3;
  const bool is_scatter = spec.what == Collective::kReducescatter;
  for (const bool in_place : {false, true}) {
    if (in_place && is_scatter) continue;
    std::vector<std::vector<std::byte>> in(n), out(n);
    for (Rank me = 0; me < n; ++me) {
      in[me] = bytes_of(values[me]);
      out[me].resize(static_cast<size_t>(is_scatter ? spec.counts[me] : spec.count) * sizeof(Raw),
                     std::byte{0xEE});
    }
    if (!run(topology, spec, in, out, in_place)) return;
    int64_t begin = 0;
    for (Rank me = 0; me < n; ++me) {
      const auto got = elements_of<Raw>(out[me]);
      for (size_t i = 0; i < got.size(); ++i) {
        const Raw expected = want[begin + static_cast<int64_t>(i)];
        if (same_element<kType>(got[i], expected)) continue;
        ASSERT_FALSE(is_exact) << "rank " << me << " element " << i << ": " << +got[i] << " instead of "
                               << +expected;
        const double epsilon = kType == DType::kFloat64 ? 1e-15 : kType == DType::kFloat32 ? 1e-6 : 1e-2;
        const double scale = std::max(1.0, magnitude[begin + static_cast<int64_t>(i)]);
        ASSERT_NEAR(static_cast<double>(E::widen(got[i])), static_cast<double>(E::widen(expected)),
                    8 * epsilon * (spec.op == ReduceOp::kProduct ? std::pow(scale, n) : scale));
      }
      if (is_scatter) begin += spec.counts[me];
    }
  }
}

void EveryAlgorithm::reductions(const Topology& topology, DType dtype, ReduceOp op, int64_t count,
                                const Scale& scale) {
  Spec spec;
  spec.what = algorithm().what;
  spec.dtype = dtype;
  spec.op = op;
  spec.count = count;
  spec.scale = scale;
  if (spec.what == Collective::kReducescatter) {  // uneven, some empty
    spec.counts.assign(topology.size(), 0);
    int64_t left = count;
    for (Rank i = topology.size() - 1; i > 0; --i) {
      spec.counts[i] = i % 3 == 1 ? 0 : left / 2;
      left -= spec.counts[i];
    }
    spec.counts[0] = left;
  }
  SCOPED_TRACE(describe(topology) + ", " + std::string(name_of(dtype)) + " " + std::string(name_of(op)) +
               " of " + std::to_string(count) + ", seed " + std::to_string(seed_));
  with_type(dtype, [&](auto type) { reduction_of<type()>(topology, spec); });
}

TEST_P(ReducingAlgorithm, reduces_every_type_as_defined) {
  for (const Topology& topology : topologies()) {
    const int64_t n = topology.size();
    for (int d = 0; d < kDTypeCount; ++d) {
      const auto dtype = static_cast<DType>(d);
      for (const int64_t count : {0, 1, 3, 64, 777}) reductions(topology, dtype, ReduceOp::kSum, count, {});
      reductions(topology, dtype, ReduceOp::kSum, 300, {1.0, n});
      reductions(topology, dtype, ReduceOp::kSum, 300, {0.5, n});
      for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct})
        reductions(topology, dtype, op, 200, {});
      if (HasFatalFailure()) return;
    }
  }
}

// ---- collectives that only move ----

// Every element says where it came from: rank and index.
std::vector<int32_t> labelled(Rank rank, int64_t count) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), rank * 100'000);
  return values;
}

void EveryAlgorithm::check_moves(const Topology& topology, Spec spec) {
  SCOPED_TRACE(describe(topology) + ", count " + std::to_string(spec.count) + ", seed " +
               std::to_string(seed_));
  const Rank n = topology.size();
  spec.dtype = DType::kInt32;
  std::vector<std::vector<std::byte>> in(n), out(n), want(n);
  std::vector<std::vector<int32_t>> values(n);
  for (Rank me = 0; me < n; ++me) {
    values[me] = labelled(me, backend::input_count(spec, me, n));
    in[me] = bytes_of(values[me]);
    out[me].resize(static_cast<size_t>(backend::output_count(spec, me, n)) * sizeof(int32_t));
  }
  for (Rank me = 0; me < n; ++me) {
    std::vector<int32_t> expected;
    if (spec.what == Collective::kBroadcast) expected = values[spec.root];
    for (Rank from = 0; from < n; ++from) {
      if (spec.what == Collective::kAllgather)
        expected.insert(expected.end(), values[from].begin(), values[from].end());
      if (spec.what != Collective::kAlltoall) continue;
      const auto row = spec.counts.begin() + from * n;
      const auto begin = values[from].begin() + std::accumulate(row, row + me, int64_t{0});
      expected.insert(expected.end(), begin, begin + row[me]);
    }
    want[me] = bytes_of(expected);
  }
  for (const bool in_place : {false, true}) {
    if (in_place && spec.what != Collective::kBroadcast) continue;
    if (!run(topology, spec, in, out, in_place)) return;
    for (Rank me = 0; me < n; ++me)
      ASSERT_EQ(elements_of<int32_t>(out[me]), elements_of<int32_t>(want[me])) << "rank " << me;
  }
}

TEST_P(MovingAlgorithm, moves_every_element_to_its_place) {
  Spec spec;
  spec.what = algorithm().what;
  for (const Topology& topology : topologies()) {
    const Rank n = topology.size();
    for (const int64_t count : {0, 1, 50, 700}) {
      spec.count = spec.what == Collective::kBroadcast ? count : 0;
      spec.counts.clear();
      if (spec.what == Collective::kAllgather)
        for (Rank i = 0; i < n; ++i) spec.counts.push_back(i % 3 == 1 ? 0 : count + 7 * i);
      if (spec.what == Collective::kAlltoall)
        for (Rank i = 0; i < n * n; ++i) spec.counts.push_back((i * 37 + 3) % 5 == 0 ? 0 : count / 4 + i);
      if (spec.what == Collective::kBroadcast)
        for (spec.root = 0; spec.root < n; ++spec.root) check_moves(topology, spec);
      if (spec.what == Collective::kAllgather || spec.what == Collective::kAlltoall ||
          spec.what == Collective::kBarrier)
        check_moves(topology, spec);
      if (HasFatalFailure()) return;
    }
  }
}

// ---- Adasum ----

// The tree of the definition, tensor by tensor, in the accumulator type; rounded once at the end.
std::vector<float> adasum_tree(std::vector<std::vector<float>> vectors,
                               const std::vector<int64_t>& segments) {
  for (size_t width = 1; width < vectors.size(); width *= 2)
    for (size_t left = 0; left + width < vectors.size(); left += 2 * width) {
      size_t at = 0;
      for (const int64_t segment : segments) {
        float* a = vectors[left].data() + at;
        kernels::adasum(DType::kFloat32, a, vectors[left + width].data() + at, a,
                        static_cast<size_t>(segment));
        at += static_cast<size_t>(segment);
      }
    }
  return vectors[0];
}

TEST_P(AdasumAlgorithm, adasum_treats_each_tensor_of_a_fused_call_by_itself) {
  Spec spec;
  spec.what = algorithm().what;
  spec.op = ReduceOp::kAdasum;
  for (const Topology& topology : topologies())
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
      const Rank n = topology.size();
      const bool is_half = dtype == DType::kBfloat16;
      spec.dtype = dtype;
      spec.segment_counts = {3, 0, 250, 1, 46};
      spec.count = 300;
      std::mt19937_64 random(seed_);
      std::vector<std::vector<float>> vectors(n);
      std::vector<std::vector<std::byte>> in(n), out(n);
      for (Rank me = 0; me < n; ++me) {
        std::vector<uint16_t> halves;
        for (int i = 0; i < 300; ++i) {
          halves.push_back(random_value<DType::kBfloat16>(random));
          vectors[me].push_back(Element<DType::kBfloat16>::widen(halves.back()));
        }
        in[me] = is_half ? bytes_of(halves) : bytes_of(vectors[me]);
        out[me].resize(in[me].size());
      }
      if (!run(topology, spec, in, out, false)) return;
      const std::vector<float> want = adasum_tree(vectors, spec.segment_counts);
      for (Rank me = 0; me < n; ++me)
        for (size_t i = 0; i < want.size(); ++i) {
          if (is_half)
            ASSERT_EQ(elements_of<uint16_t>(out[me])[i], Element<DType::kBfloat16>::narrow(want[i]))
                << describe(topology);
          else
            ASSERT_EQ(elements_of<float>(out[me])[i], want[i])
                << describe(topology) << " rank " << me << " at " << i;
        }
    }
}

}  // namespace
}  // namespace rueda::backend_test
