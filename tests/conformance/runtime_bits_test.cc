// The bits of a sum on whole engines do not depend on what is fused, how transfers are cut, which algorithm
// that keeps the order runs, or whether plans are learned.
#include <cmath>
#include <random>
#include <set>

#include "engine_job.h"
#include "rueda/kernels/kernels.h"
#include "rueda/schedule/algorithm.h"
#include "ucx_here.h"

namespace rueda::runtime::bits_test {
namespace {

struct World {
  const char* name;
  std::string hosts;  // a letter for each rank
  const char* transports;
};

void PrintTo(const World& world, std::ostream* out) { *out << world.name; }

// Elements of any type, whose exponents differ by rank: another order of additions is another result.
std::vector<std::byte> numbers(DType dtype, size_t count, uint64_t seed, Rank rank) {
  std::mt19937_64 random(seed * 16 + static_cast<uint64_t>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> wide(count);
  for (float& value : wide) value = std::ldexp(normal(random), 3 * rank);
  std::vector<std::byte> bytes(count * size_of(dtype));
  if (dtype == DType::kFloat64) {
    const std::vector<double> wider(wide.begin(), wide.end());
    std::memcpy(bytes.data(), wider.data(), bytes.size());
  } else if (dtype == DType::kFloat32) {
    std::memcpy(bytes.data(), wide.data(), bytes.size());
  } else {
    kernels::finish(dtype, reinterpret_cast<const std::byte*>(wide.data()), bytes.data(), count, Scale{});
  }
  return bytes;
}

// All results of one rank after some rounds of the same steps.
std::vector<std::byte> results_of(Engine& engine, Rank rank) {
  constexpr std::array<size_t, 6> kCounts = {1, 7, 1000, 4096, 30'001, 150'000};
  std::vector<std::byte> results;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kFloat64}) {
    for (int round = 0; round < 4; ++round) {  // so that plans are learned
      std::vector<std::vector<std::byte>> data;
      std::vector<int64_t> handles;
      for (size_t i = 0; i < kCounts.size(); ++i) {
        data.push_back(numbers(dtype, kCounts[i], 100 * i + static_cast<uint64_t>(round), rank));
        Tensor tensor = make_tensor(Collective::kAllreduce, std::string(name_of(dtype)) + std::to_string(i),
                                    {static_cast<int64_t>(kCounts[i])}, data.back().data());
        tensor.request.dtype = dtype;
        tensor.request.op = i % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAverage;
        handles.push_back(must_submit(engine, std::move(tensor)));
      }
      for (const int64_t handle : handles) {
        const Status status = engine.wait(handle, Deadline::after(60 * kSecond));
        EXPECT_TRUE(status.is_ok()) << status.why;
        engine.operations().release(handle);
      }
      for (const auto& one : data) results.insert(results.end(), one.begin(), one.end());
    }
  }
  return results;
}

std::vector<std::vector<std::byte>> run_with(const World& world, const Env& settings) {
  const auto size = static_cast<Rank>(world.hosts.size());
  const Job job(size, world.transports, world.hosts);
  std::vector<std::vector<std::byte>> results(world.hosts.size());
  job.run([&](Engine& engine, Rank rank) { results[static_cast<size_t>(rank)] = results_of(engine, rank); },
          settings);
  return results;
}

class Bits : public testing::TestWithParam<World> {};

TEST_P(Bits, do_not_depend_on_settings) {
  const World& world = GetParam();
  std::vector<Env> settings = {
      {{"RUEDA_PLANS", "0"}, {"RUEDA_FUSION_THRESHOLD", "0"}},
      {{"RUEDA_FUSION_THRESHOLD", "20000"}},
      {{"RUEDA_CHUNK_BYTES", "1024"}},
      {{"RUEDA_CHUNK_BYTES", "100000"}},
      {{"RUEDA_CHUNK_BYTES", "16777216"}},
      {{"RUEDA_CYCLE_TIME", "2"}},
  };
  const bool is_one_each =
      std::set<char>(world.hosts.begin(), world.hosts.end()).size() == world.hosts.size();
  for (const schedule::Algorithm& algorithm : schedule::algorithms()) {
    const bool keeps =
        algorithm.preserves_order == schedule::PreservesOrder::kAlways ||
        (is_one_each && algorithm.preserves_order == schedule::PreservesOrder::kWhereHostsHaveOneRank);
    if (algorithm.what == Collective::kAllreduce && keeps && algorithm.name != "adasum")
      settings.push_back({{"RUEDA_ALGORITHM", std::string(algorithm.name)}});
  }
  const auto defaults = run_with(world, {});
  for (size_t rank = 1; rank < defaults.size(); ++rank) EXPECT_EQ(defaults[rank], defaults[0]);
  for (const Env& setting : settings) {
    const auto found = run_with(world, setting);
    for (size_t rank = 0; rank < found.size(); ++rank)
      EXPECT_EQ(found[rank], defaults[0])
          << setting.begin()->first << "=" << setting.begin()->second << ", rank " << rank;
  }
}

TEST(Bits, of_these_numbers_show_another_order) {
  const World world{.name = "three", .hosts = "aaa", .transports = "tcp"};
  EXPECT_NE(run_with(world, {{"RUEDA_ALGORITHM", "ring"}})[0], run_with(world, {})[0]);
}

TEST(Bits, over_ucx_are_those_over_tcp) {
  using rueda::ucx_test::UcxOver;
  const auto expect_equal = [](const char* hosts, const char* ucx, const char* tcp) {
    EXPECT_EQ(run_with(World{"ucx", hosts, ucx}, {}), run_with(World{"tcp", hosts, tcp}, {})) << hosts;
  };
  if (const std::string why = rueda::ucx_test::why_no_ucx(UcxOver::kTcp); !why.empty()) GTEST_SKIP() << why;
  expect_equal("abc", "ucx", "tcp");
  ASSERT_EQ(rueda::ucx_test::why_no_ucx(UcxOver::kSharedMemory), "");
  expect_equal("aabb", "shm,ucx", "shm,tcp");
}

INSTANTIATE_TEST_SUITE_P(Worlds, Bits,
                         testing::Values(World{"three", "aaa", "shm,tcp"}, World{"three_tcp", "aaa", "tcp"},
                                         World{"two_hosts_of_two", "aabb", "shm,tcp"},
                                         World{"four_hosts", "abcd", "tcp"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rueda::runtime::bits_test
