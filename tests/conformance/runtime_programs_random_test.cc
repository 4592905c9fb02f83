// Random programs of all collectives on whole engines, over every backend and transport, on one host and on
// several. Every result is compared, bit for bit, with a scalar definition that adds in the documented order.
// It is one for all worlds in which sums follow rank order, so these also agree with one another.
// RUEDA_TEST_PROGRAMS: twice the programs for each world; 1 at least. RUEDA_TEST_SEED: runs only this one.
// RUEDA_TEST_MOST_ROWS: no tensor has more; sanitizers take a minute for a program with large ones.
// RUEDA_TEST_ALGORITHM: forces this algorithm everywhere. With "ring" the test must fail.
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "engine_job.h"
#include "nccl_fixture.h"
#include "random_program.h"
#include "random_side.h"
#include "rank_devices.h"
#include "ucx_here.h"

namespace rueda::runtime::programs_random_test {
namespace {

using namespace random_program;

struct World {
  const char* name;
  std::string hosts;  // a letter for each rank
  const char* transports = "shm,tcp";
  Env settings = {};
  bool has_arena = false;
  bool is_exact = false;     // the order of additions is not the documented one
  bool has_devices = false;  // two of three tensors are in device memory
  bool has_nccl = false;     // which reduces them; then is_exact
  int32_t devices = 2;       // of the machine; a rank uses that of its number, and the next one
};

class CudaDevices final : public SideDevices {
 public:
  CudaDevices(Rank rank, int32_t devices) : devices_(rank, devices) {}
  int32_t device_of(uint64_t pick) override { return devices_.device_of(pick); }
  std::byte* allocate(int32_t device, size_t bytes) override { return devices_.allocate(device, bytes); }
  Memory fill_later(int32_t device, std::byte* memory, const Bytes& bytes) override {
    return devices_.fill_later(device, memory, bytes);
  }
  void* stream() override { return devices_.stream().handle(); }
  void synchronize() override { devices_.stream().synchronize(); }

 private:
  cuda_test::RankDevices devices_;
};

void PrintTo(const World& world, std::ostream* out) { *out << world.name; }

// None of them may change a bit. Seed 0 runs with the defaults.
Env settings_of(const World& world, uint64_t seed) {
  Env settings = world.settings;
  settings["RUEDA_DYNAMIC_PROCESS_SETS"] = "1";
  if (world.has_devices) settings["RUEDA_CUDA_LIBRARY"] = RUEDA_FAKE_CUDA;
  if (world.has_devices) settings["RUEDA_GPU_OPERATIONS"] = world.has_nccl ? "nccl" : "staged";
  if (world.has_nccl) settings["RUEDA_NCCL_LIBRARY"] = nccl_test::kLibrary;
  if (const char* const algorithm = std::getenv("RUEDA_TEST_ALGORITHM"))
    settings["RUEDA_ALGORITHM"] = algorithm;
  std::mt19937_64 random(mix(seed));
  const auto maybe = [&](const char* name, std::vector<const char*> values) {
    if (random() % 2 == 0 && seed != 0) settings[name] = values[random() % values.size()];
  };
  maybe("RUEDA_PLANS", {"0", "1", "1"});
  maybe("RUEDA_FUSION_THRESHOLD", {"0", "20000", "300000"});
  maybe("RUEDA_CHUNK_BYTES", {"1024", "100000", "16777216"});
  maybe("RUEDA_PRIORITY_BYTES", {"1000", "100000"});
  maybe("RUEDA_CYCLE_TIME", {"0.2", "1"});
  maybe("RUEDA_DISABLE_GROUP_FUSION", {"1"});
  maybe("RUEDA_STAGING_BYTES", {"4096", "4096", "100000"});
  maybe("RUEDA_CUDA_IPC", {"on", "on", "off"});
  return settings;
}

std::vector<Outcome> run_program(const World& world, uint64_t seed) {
  const auto size = static_cast<Rank>(world.hosts.size());
  const Job job(size, world.transports, world.hosts);
  const char* const most_rows = std::getenv("RUEDA_TEST_MOST_ROWS");
  const Program program(seed, size, world.is_exact, most_rows == nullptr ? 300'000 : std::atoll(most_rows));
  const Env settings = settings_of(world, seed);
  const bool is_bitwise = settings.contains("RUEDA_DETERMINISM");
  const Setup setup{.seed = seed,
                    .hosts = is_bitwise ? std::string(world.hosts.size(), 'a') : world.hosts,
                    .is_exact = world.is_exact,
                    .rounds_at_every_hop = world.has_nccl};
  std::vector<Outcome> outcomes(world.hosts.size());
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      InitOptions options{.process_sets = {program.sets[1]}};
      if (world.has_arena) options.arena = memory::Arena::create(256 << 20).value();
      const std::shared_ptr<memory::Arena> arena = options.arena;
      Result<Session> session = job.start(rank, settings, std::move(options));
      ASSERT_TRUE(session.is_ok()) << "seed " << seed << ": " << session.status().to_string();
      const std::shared_ptr<Engine> engine = Engine::start(std::move(session).value()).value();
      const auto devices = world.has_devices ? std::make_unique<CudaDevices>(rank, world.devices) : nullptr;
      outcomes[static_cast<size_t>(rank)] = Side(*engine, rank, setup, arena, devices.get()).run(program);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// The same for all worlds of a run.
uint64_t seed_of_run() {
  static const uint64_t seed = std::random_device{}() % 1'000'000'000 + 1;
  return seed;
}

class RandomPrograms : public testing::TestWithParam<World> {};

TEST_P(RandomPrograms, give_the_documented_bits) {
  using rueda::ucx_test::UcxOver;
  const auto over = GetParam().hosts == "aa" ? UcxOver::kSharedMemory : UcxOver::kTcp;
  if (const std::string why = rueda::ucx_test::why_no_ucx(GetParam().transports, over); !why.empty())
    GTEST_SKIP() << why;
  const char* const chosen = std::getenv("RUEDA_TEST_SEED");
  const char* const wanted = std::getenv("RUEDA_TEST_PROGRAMS");
  const int programs = chosen != nullptr || wanted == nullptr ? 1 : std::max(1, std::atoi(wanted) / 2);
  const bool is_local = std::string(GetParam().name).starts_with("local");
  Outcome total;
  for (int i = 0; i < programs && !HasFailure(); ++i) {
    uint64_t seed = seed_of_run() + static_cast<uint64_t>(i);
    if (chosen != nullptr) seed = std::strtoull(chosen, nullptr, 10);
    for (const Outcome& outcome : run_program(GetParam(), seed)) {
      EXPECT_TRUE(outcome.is_local || !is_local) << "the local backend is not there";
      total.tensors += outcome.tensors;
      total.planned += outcome.planned;
      total.departures += outcome.departures;
    }
    if (HasFailure()) std::cout << "to repeat this: RUEDA_TEST_SEED=" << seed << "\n";
  }
  std::cout << "[ programs ] " << programs << " on " << GetParam().name << ": " << total.tensors
            << " results, " << total.planned << " buckets of plans, " << total.departures << " departures\n";
}

// Not every program has steps that repeat, but this one has.
TEST(RandomProgram, learns_plans_and_departs_from_them) {
  Outcome total;
  for (const Outcome& outcome : run_program(World{"hosts_of_one", "abc", "tcp"}, 0)) {
    total.planned += outcome.planned;
    total.departures += outcome.departures;
  }
  EXPECT_GT(total.planned, 0);
  EXPECT_GT(total.departures, 0);
}

Env with(const char* algorithm) { return {{"RUEDA_ALGORITHM", algorithm}}; }

INSTANTIATE_TEST_SUITE_P(
    Worlds, RandomPrograms,
    testing::Values(
        World{"local_two", "aa"}, World{"local_three", "aaa"}, World{"local_five", "aaaaa"},
        World{"local_ten_gathered", "aaaaaaaaaa"},
        World{.name = "local_arenas", .hosts = "aaaa", .has_arena = true},
        World{"shm_two", "aa", "shm,tcp", with("flat_gather")},
        World{"shm_four", "aaaa", "shm,tcp", with("direct")},
        World{"shm_pairwise_order", "ab", "shm,tcp", with("recursive_doubling")},
        World{.name = "shm_ring", .hosts = "aaa", .settings = with("ring"), .is_exact = true},
        World{"tcp_two", "aa", "tcp"}, World{"tcp_four", "aaaa", "tcp", with("direct")},
        World{"hosts_of_two_and_one", "aab"}, World{"hosts_that_alternate", "abab"},
        World{"hosts_of_one", "abc", "tcp"}, World{"hosts_of_one_folded", "abcde", "tcp"},
        World{"hosts_uneven", "abbca"},
        World{"hosts_bitwise", "aabb", "shm,tcp", {{"RUEDA_DETERMINISM", "bitwise"}}},
        World{"hosts_alternate_bitwise", "abaab", "shm,tcp", {{"RUEDA_DETERMINISM", "bitwise"}}},
        World{.name = "hosts_with_arenas", .hosts = "aabb", .has_arena = true},
        World{.name = "local_devices", .hosts = "aaa", .has_devices = true},
        World{.name = "hosts_with_devices", .hosts = "aab", .has_devices = true},
        World{.name = "nccl", .hosts = "aa", .is_exact = true, .has_devices = true, .has_nccl = true},
        World{.name = "nccl_hosts", .hosts = "ab", .is_exact = true, .has_devices = true, .has_nccl = true},
        World{.name = "nccl_hierarchical",
              .hosts = "abba",
              .settings = {{"RUEDA_HIERARCHICAL_ALLREDUCE", "1"}},
              .is_exact = true,
              .has_devices = true,
              .has_nccl = true,
              .devices = 4},
        World{.name = "nccl_some_gpus_shared",
              .hosts = "aab",
              .is_exact = true,
              .has_devices = true,
              .has_nccl = true},
        World{"hosts_halving", "abcd", "tcp", with("halving_doubling")},
        World{"hosts_halving_odd", "abcdefg", "tcp", with("halving_doubling")},
        World{"hosts_two_level", "aabb", "shm,tcp", with("two_level")}, World{"ucx_two", "aa", "ucx"},
        World{"ucx_hosts_of_one", "abcd", "ucx"}, World{"ucx_hosts_of_two_and_one", "aab", "shm,ucx"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rueda::runtime::programs_random_test
