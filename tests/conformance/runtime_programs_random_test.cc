// Random programs of all collectives on whole engines, over every backend and transport, on one host and on
// several. Every result is compared, bit for bit, with a scalar definition that adds in the documented order.
// It is one for all worlds in which sums follow rank order, so these also agree with one another.
// RUEDA_TEST_PROGRAMS: twice the programs for each world; 1 at least. RUEDA_TEST_SEED: runs only this one.
// RUEDA_TEST_ALGORITHM: forces this algorithm everywhere. With "ring" the test must fail.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>

#include "engine_job.h"
#include "random_program.h"
#include "rank_devices.h"

namespace rueda::runtime {
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
};

void PrintTo(const World& world, std::ostream* out) { *out << world.name; }

struct Outcome {
  int64_t tensors = 0, planned = 0, departures = 0;
  bool is_local = false;
};

// One rank's side of a program.
class Side {
 public:
  Side(Engine& engine, Rank rank, const Setup& setup, std::shared_ptr<memory::Arena> arena, bool has_devices)
      : engine_(engine),
        rank_(rank),
        setup_(setup),
        own_(mix(setup.seed + static_cast<uint64_t>(rank))),
        arena_(std::move(arena)) {
    if (has_devices) devices_.emplace(rank);
  }

  Outcome run(const Program& program) {
    sets_ = program.sets;
    for (const Block& block : program.blocks)
      for (int i = 0; i < block.repeats && !is_broken_; ++i) do_block(block);
    // A rank that leaves ends what other ranks still do in a process set of their own.
    if (!is_broken_) check(run_one(engine_, make_tensor(Collective::kBarrier, "last", {}, nullptr)));
    outcome_.planned = engine_.counters().planned_batches;
    outcome_.departures = engine_.counters().departures;
    outcome_.is_local = engine_.session().reduces_in_shared_memory;
    return outcome_;
  }

 private:
  // A tensor that has been submitted.
  struct Open {
    Moment moment;
    Tensor tensor;
    int64_t handle = -1;
    size_t index = 0;  // in its operation
  };

  void do_block(const Block& block) {
    ++round_;
    std::vector<Item> items = block.items;
    switch (block.kind) {
      case Kind::kShuffled:
        std::shuffle(items.begin(), items.end(), own_);
        [[fallthrough]];
      case Kind::kStep:
        return step(items);
      case Kind::kOneByOne:
        for (const Item& item : items) step({item});
        return;
      case Kind::kGroup:
        return group(items);
      case Kind::kUneven:
        return uneven(block);
      case Kind::kNewSet:
        return in_new_set(items);
    }
  }

  void step(const std::vector<Item>& items, const std::vector<bool>& is_present = {}) {
    std::vector<Open> all;
    all.reserve(items.size());
    for (const Item& item : items) {
      if (!is_member(item)) continue;
      Open& open = all.emplace_back(prepare(item, is_present));
      open.handle = must_submit(engine_, std::move(open.tensor));
    }
    if (round_ % 16 == 0) check(run_one(engine_, make_tensor(Collective::kBarrier, "barrier", {}, nullptr)));
    for (const Open& open : all) finish(open);
  }

  void group(const std::vector<Item>& items) {
    std::vector<Open> all;
    std::vector<Tensor> tensors;
    for (const Item& item : items) {
      if (!is_member(item)) continue;
      Open& open = all.emplace_back(prepare(item, {}));
      open.index = all.size() - 1;
      open.tensor.request.group_index = static_cast<int32_t>(open.index);
      open.tensor.request.group_size = static_cast<int32_t>(items.size());
      open.tensor.request.group_name = items[0].name;
      tensors.push_back(std::move(open.tensor));
    }
    if (all.empty()) return;
    const Result<int64_t> handle = engine_.submit(std::move(tensors));
    check(handle.status());
    if (is_broken_) return;
    await(handle.value());
    for (const Open& open : all) compare(open, *engine_.operations().find(handle.value()));
    engine_.operations().release(handle.value());
  }

  void uneven(const Block& block) {
    const auto steps_of = [&](Rank rank) { return mix(block.seed + static_cast<uint64_t>(rank)) % 4; };
    const uint64_t first = round_;
    for (uint64_t i = 0; i < steps_of(rank_) && !is_broken_; ++i) {
      std::vector<bool> is_present;
      for (const Rank rank : sets_[0]) is_present.push_back(steps_of(rank) > i);
      round_ = first + i;
      step(block.items, is_present);
    }
    round_ = first + 4;
    Tensor join = make_tensor(Collective::kJoin, "join", {}, nullptr);
    join.request.tag = rank_ * 10;
    const int64_t handle = must_submit(engine_, std::move(join));
    await(handle);
    EXPECT_TRUE(is_broken_ || engine_.operations().find(handle)->tag == (std::ssize(sets_[0]) - 1) * 10);
    engine_.operations().release(handle);
  }

  void in_new_set(const std::vector<Item>& items) {
    const Result<int32_t> id = engine_.add_process_set(sets_[kDynamicSet]);
    check(id.status());
    if (is_broken_) return;
    dynamic_id_ = id.value();
    step(items);
    check(engine_.remove_process_set(id.value()));
  }

  [[nodiscard]] bool is_member(const Item& item) const {
    return std::ranges::count(sets_[item.set], rank_) > 0 && !is_broken_;
  }

  Open prepare(const Item& item, const std::vector<bool>& is_present) {
    Open open{.moment = {.setup = setup_,
                         .item = item,
                         .members = sets_[item.set],
                         .round = round_,
                         .is_present = is_present},
              .tensor = {}};
    const Bytes input = input_of(open.moment, rank_);
    const uint64_t pick = mix(std::hash<std::string>()(item.name));
    const bool is_on_device = devices_ && pick % 3 != 0;
    const int32_t device = is_on_device ? devices_->device_of(pick / 3) : -1;
    std::byte* const data = memory(item.name, input.size(), device);
    open.tensor = make_tensor(item.what, item.name, {open.moment.rows(rank_), item.columns}, data);
    if (open.tensor.output != nullptr && !item.is_in_place())
      open.tensor.output = memory(item.name + "out", input.size(), device);
    if (is_on_device)
      open.tensor.memory = devices_->fill_later(device, data, input);
    else
      std::ranges::copy(input, data);
    open.tensor.request.memory = open.tensor.memory.kind;
    open.tensor.request.device = device;
    control::TensorRequest& request = open.tensor.request;
    request.dtype = item.dtype;
    request.op = item.op;
    request.prescale = item.prescale;
    request.postscale = item.postscale;
    request.priority = item.priority;
    request.process_set = item.set == kDynamicSet ? dynamic_id_ : static_cast<int32_t>(item.set);
    if (item.what == Collective::kBroadcast) request.root = item.root(open.moment.members);
    if (item.what == Collective::kAlltoall) request.splits = open.moment.splits(rank_);
    return open;
  }

  void finish(const Open& open) {
    await(open.handle);
    if (!is_broken_) compare(open, *engine_.operations().find(open.handle));
    engine_.operations().release(open.handle);
  }

  // In one of the ways in which threads wait.
  void await(int64_t handle) {
    if (is_broken_) return;
    const Deadline deadline = Deadline::after(60 * kSecond);
    const auto way = own_() % 4;
    if (way == 3 && devices_) {
      const Status waits = engine_.wait_on_stream(handle, devices_->stream().handle(), deadline);
      if (waits.is_ok()) return devices_->stream().synchronize();
      return check(waits);
    }
    while (way == 0 && engine_.operations().poll(handle) == 0 && !deadline.is_past(monotonic_now()))
      std::this_thread::yield();
    check(way == 1 ? engine_.operations().wait(handle, deadline) : engine_.wait(handle, deadline));
  }

  // A rank whose call failed goes no further; the others then fail because it leaves.
  void check(const Status& status) {
    EXPECT_TRUE(status.is_ok() || is_broken_) << here() << ": " << status.why;
    is_broken_ = is_broken_ || !status.is_ok();
  }

  // Reports only the first difference of a rank.
  void compare(const Open& open, const Operation& operation) {
    const Item& item = open.moment.item;
    const Tensor& found = operation.tensors[open.index];
    const Expected expected = expected_of(open.moment, rank_);
    ++outcome_.tensors;
    if (is_wrong_) return;
    is_wrong_ = true;
    ASSERT_EQ(found.result_shape, (std::vector<int64_t>{expected.rows, item.columns})) << here(item);
    ASSERT_EQ(found.received_splits, expected.received_splits) << here(item);
    ASSERT_EQ(first_difference(item.dtype, expected.bytes, found.output), -1) << here(item);
    is_wrong_ = false;
  }

  [[nodiscard]] std::string here() const {
    return "seed " + std::to_string(setup_.seed) + ", rank " + std::to_string(rank_) + ", round " +
           std::to_string(round_);
  }
  [[nodiscard]] std::string here(const Item& item) const {
    std::ostringstream out;
    out << here() << ", " << name_of(item.what) << " " << item.name << ": " << item.rows << " x "
        << item.columns << " " << name_of(item.dtype) << " " << name_of(item.op) << ", factors "
        << item.prescale << " and " << item.postscale << ", process set " << item.set;
    return out.str();
  }

  // The same for a name each time, so that shared buffers stay registered.
  std::byte* memory(const std::string& name, size_t bytes, int32_t device) {
    std::span<std::byte>& known = memory_[name];
    if (known.data() != nullptr && bytes <= known.size()) return known.data();
    if (device >= 0) {
      known = {devices_->allocate(device, bytes), bytes};
    } else if (arena_ && mix(std::hash<std::string>()(name)) % 4 != 0) {
      known = {static_cast<std::byte*>(arena_->allocate(bytes)), bytes};
    } else {
      known = own_memory_.emplace_back(bytes + 1);
    }
    return known.data();
  }

  Engine& engine_;
  Rank rank_;
  const Setup& setup_;
  std::mt19937_64 own_;
  std::shared_ptr<memory::Arena> arena_;
  std::vector<std::vector<Rank>> sets_;
  int32_t dynamic_id_ = -1;
  uint64_t round_ = 0;
  bool is_broken_ = false, is_wrong_ = false;
  Outcome outcome_;
  std::map<std::string, std::span<std::byte>> memory_;
  std::deque<Bytes> own_memory_;
  std::optional<cuda_test::RankDevices> devices_;
};

// None of them may change a bit. Seed 0 runs with the defaults.
Env settings_of(const World& world, uint64_t seed) {
  Env settings = world.settings;
  settings["RUEDA_DYNAMIC_PROCESS_SETS"] = "1";
  if (world.has_devices) settings["RUEDA_CUDA_LIBRARY"] = RUEDA_FAKE_CUDA;
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
  return settings;
}

std::vector<Outcome> run_program(const World& world, uint64_t seed) {
  const auto size = static_cast<Rank>(world.hosts.size());
  const Job job(size, world.transports, world.hosts);
  const Program program(seed, size, world.is_exact);
  const Env settings = settings_of(world, seed);
  const bool is_bitwise = settings.contains("RUEDA_DETERMINISM");
  const Setup setup{.seed = seed,
                    .hosts = is_bitwise ? std::string(world.hosts.size(), 'a') : world.hosts,
                    .is_exact = world.is_exact};
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
      outcomes[static_cast<size_t>(rank)] = Side(*engine, rank, setup, arena, world.has_devices).run(program);
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
    testing::Values(World{"local_two", "aa"}, World{"local_three", "aaa"}, World{"local_five", "aaaaa"},
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
                    World{"hosts_halving", "abcd", "tcp", with("halving_doubling")},
                    World{"hosts_two_level", "aabb", "shm,tcp", with("two_level")}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rueda::runtime
