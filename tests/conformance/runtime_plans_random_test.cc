// Random programs on whole engines, each run twice: with learned plans and fusion, and with
// neither. Both must give the same bits, whatever a program does to its plans. RUEDA_TEST_PROGRAMS:
// how many for each world.
#include <cstring>
#include <iostream>
#include <map>
#include <random>

#include "engine_job.h"
#include "mix.h"

namespace rueda::runtime::plans_random_test {
namespace {

struct Model {
  std::string prefix;
  std::vector<int64_t> counts;
  std::vector<int32_t> sets;  // [tensor] the process set
  std::vector<bool> gathers;  // [tensor] an allgather of other rows in each round and on each rank
};

enum class Kind {
  kStep,       // all tensors, then all waits
  kShuffled,   // the same, each rank in an order of its own
  kOneByOne,   // waits for each before it submits the next
  kHalf,       // waits for one tensor when half of them are submitted
  kWithout,    // one tensor is missing
  kWithMore,   // a new one comes
  kBothInOne,  // two models in one step, as of two losses
  kGroup,      // one operation of all tensors
  kBarrier,    // a collective between steps that no plan takes
  kLate,       // a rank comes later, the others poll
  kUneven,     // ranks have different numbers of steps; who has no more joins
};
constexpr int kKinds = 11;

struct Block {
  Kind kind;
  int repeats;
  size_t model;
  size_t pick;  // a tensor or a rank
  uint64_t seed;
};

// The same for all ranks. has_sets: two of three tensors are of process sets other than the world. has_rows:
// one of three is an allgather.
struct Program {
  Program(uint64_t seed, Rank size, bool has_sets, bool has_rows) {
    std::mt19937_64 random(seed);
    sets = {{}, {0}, {0, size - 1}, {}, {}};
    for (Rank rank = 0; rank < size; ++rank) {
      sets[0].push_back(rank);
      if (rank > 0) sets[3].push_back(rank);
      if (rank < size - 1) sets[4].push_back(rank);
    }
    constexpr std::array<int64_t, 8> kCounts = {0, 1, 10, 300, 9000, 16'384, 70'000, 300'000};
    for (const std::string prefix : {"g", "d"}) {
      Model& model = models.emplace_back(Model{.prefix = prefix, .counts = {}, .sets = {}, .gathers = {}});
      for (size_t i = 2 + random() % 6; i > 0; --i)
        model.counts.push_back(kCounts[random() % kCounts.size()]);
      for (size_t i = 0; i < model.counts.size(); ++i) model.gathers.push_back(has_rows && random() % 3 == 0);
      for (size_t i = 0; i < model.counts.size(); ++i)
        model.sets.push_back(has_sets && random() % 3 != 0 ? static_cast<int32_t>(random() % sets.size())
                                                           : 0);
    }
    // Every other block only recurs, or no plan would ever be learned.
    for (int i = 0; i < 16; ++i) {
      const bool recurs = i % 2 == 0;
      blocks.push_back({.kind = recurs ? Kind::kStep : static_cast<Kind>(random() % kKinds),
                        .repeats = 1 + static_cast<int>(random() % (recurs ? 30 : 6)),
                        .model = random() % models.size(),
                        .pick = random(),
                        .seed = random()});
    }
  }
  std::vector<std::vector<Rank>> sets;
  std::vector<Model> models;
  std::vector<Block> blocks;
};

// Exponents far apart, so that another order of additions is another result.
float number(uint64_t random) {
  const auto mantissa = static_cast<float>(static_cast<int32_t>(random & 0xFFFFFF) - 0x800000);
  return std::ldexp(mantissa, static_cast<int>(random >> 32 & 15) - 24);
}

uint64_t digest_of(uint64_t seed, std::span<const float> values) {
  uint64_t digest = mix(seed);
  for (const float value : values) digest = (digest ^ std::bit_cast<uint32_t>(value)) * 0x100000001B3u;
  return digest;
}

struct Outcome {
  uint64_t common = 0;  // of results that all ranks have
  uint64_t own = 0;     // of those that only some ranks have
  int64_t steps = 0, tensors = 0, planned = 0, departures = 0;
};

// One rank's side of a program.
class Side {
 public:
  Side(Engine& engine, Rank rank, Rank size, uint64_t seed, std::shared_ptr<memory::Arena> arena)
      : engine_(engine),
        rank_(rank),
        size_(size),
        seed_(seed),
        own_(mix(seed + static_cast<uint64_t>(rank))),
        arena_(std::move(arena)) {}

  Outcome run(const Program& program) {
    for (const Block& block : program.blocks) {
      for (int i = 0; i < block.repeats && !testing::Test::HasFatalFailure(); ++i) {
        ++round_;
        ++outcome_.steps;
        do_block(program, block);
      }
    }
    // The first rank that leaves ends the job for all.
    const Status met = run_one(engine_, make_tensor(Collective::kBarrier, "end", {}, nullptr));
    EXPECT_TRUE(met.is_ok()) << met.why;
    outcome_.planned = engine_.counters().planned_batches;
    outcome_.departures = engine_.counters().departures;
    return outcome_;
  }

 private:
  struct Open {
    std::string name;
    std::span<float> values;
    int64_t handle;
    int32_t set = 0;
    int64_t rows = -1;  // of an allgather
  };

  [[nodiscard]] bool has_part(const Program& program, int32_t set) const {
    return std::ranges::binary_search(program.sets[static_cast<size_t>(set)], rank_);
  }
  // The tensors in which this rank takes part.
  std::vector<size_t> mine(const Program& program, const Model& model) const {
    std::vector<size_t> tensors;
    for (size_t i = 0; i < model.counts.size(); ++i)
      if (has_part(program, model.sets[i])) tensors.push_back(i);
    return tensors;
  }

  void do_block(const Program& program, const Block& block) {
    const Model& model = program.models[block.model];
    std::vector<size_t> order = mine(program, model);
    if (order.empty() && block.kind != Kind::kWithMore && block.kind != Kind::kBarrier &&
        block.kind != Kind::kBothInOne && block.kind != Kind::kUneven)
      return;
    switch (block.kind) {
      case Kind::kShuffled:
        std::shuffle(order.begin(), order.end(), own_);
        [[fallthrough]];
      case Kind::kStep:
        return step(model, order);
      case Kind::kOneByOne:
        for (const size_t i : order) finish(submit(model, i));
        return;
      case Kind::kHalf: {
        std::vector<Open> first;
        for (size_t i = 0; i < order.size() / 2 + 1; ++i) first.push_back(submit(model, order[i]));
        for (const Open& open : first) finish(open);
        return step(model, {order.begin() + static_cast<std::ptrdiff_t>(first.size()), order.end()});
      }
      case Kind::kWithout:
        std::erase(order, block.pick % model.counts.size());  // on all its members
        return step(model, order);
      case Kind::kWithMore:
        open_.push_back(submit("new" + std::to_string(round_), 100));
        return step(model, order);
      case Kind::kBothInOne:
        for (const size_t i : mine(program, program.models[1 - block.model]))
          open_.push_back(submit(program.models[1 - block.model], i));
        return step(model, order);
      case Kind::kGroup:
        return group(model, order);
      case Kind::kBarrier: {
        step(model, order);
        const Status met = run_one(engine_, make_tensor(Collective::kBarrier, "barrier", {}, nullptr));
        EXPECT_TRUE(met.is_ok()) << met.why;
        return;
      }
      case Kind::kLate:
        if (static_cast<Rank>(block.pick % static_cast<size_t>(size_)) == rank_)
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        return step(model, order);
      case Kind::kUneven:
        return uneven(model, order, block.seed);
    }
  }

  // Also what was submitted before it.
  void step(const Model& model, const std::vector<size_t>& order) {
    for (const size_t i : order) open_.push_back(submit(model, i));
    for (const Open& open : std::exchange(open_, {})) finish(open);
  }

  // One operation of the tensors of the world, and the others one by one.
  void group(const Model& model, const std::vector<size_t>& order) {
    std::vector<Tensor> tensors;
    std::vector<Open> parts;
    for (const size_t i : order) {
      if (model.sets[i] != 0 || model.gathers[i]) {
        open_.push_back(submit(model, i));
        continue;
      }
      Open& part = parts.emplace_back(prepare(model.prefix + std::to_string(i), model.counts[i]));
      tensors.push_back(tensor_of(part));
    }
    if (!tensors.empty()) {
      const Result<int64_t> handle = engine_.submissions().submit(std::move(tensors));
      ASSERT_TRUE(handle.is_ok()) << handle.status().why;
      await(handle.value(), model.prefix);
      for (const Open& part : parts) note(part, outcome_.common);
      engine_.operations().release(handle.value());
    }
    for (const Open& open : std::exchange(open_, {})) finish(open);
  }

  void uneven(const Model& model, const std::vector<size_t>& order, uint64_t seed) {
    const auto more = static_cast<int>(mix(seed + static_cast<uint64_t>(rank_)) % 4);
    for (int i = 0; i < more; ++i) {
      std::vector<Open> opened;
      for (const size_t k : order)
        if (model.sets[k] == 0 && !model.gathers[k]) opened.push_back(submit(model, k));
      for (const Open& open : opened) finish(open, outcome_.own);
    }
    const Status joined = run_one(engine_, make_tensor(Collective::kJoin, "join", {}, nullptr));
    EXPECT_TRUE(joined.is_ok()) << joined.why;
  }

  Open submit(const Model& model, size_t i) {
    const std::string name = model.prefix + std::to_string(i);
    return model.gathers[i] ? submit_rows(name, model.counts[i] % 1000, model.sets[i])
                            : submit(name, model.counts[i], model.sets[i]);
  }
  // So many elements in each row.
  Open submit_rows(const std::string& name, int64_t width, int32_t set) {
    const uint64_t rows = mix(seed_ ^ static_cast<uint64_t>(round_) << 8 ^ static_cast<uint64_t>(rank_)) % 7;
    const auto count = static_cast<size_t>(width);
    Open open{.name = name, .values = memory(name, 6 * count).first(rows * count), .handle = -1, .set = set};
    open.rows = static_cast<int64_t>(rows);
    fill(open);
    Tensor tensor = make_tensor(Collective::kAllgather, name, {open.rows, width}, open.values.data());
    tensor.request.process_set = set;
    open.handle = must_submit(engine_, std::move(tensor));
    return open;
  }
  Open submit(const std::string& name, int64_t count, int32_t set = 0) {
    Open open = prepare(name, count);
    open.set = set;
    open.handle = must_submit(engine_, tensor_of(open));
    return open;
  }

  Open prepare(const std::string& name, int64_t count) {
    Open open{.name = name, .values = memory(name, static_cast<size_t>(count)), .handle = -1};
    fill(open);
    return open;
  }
  void fill(const Open& open) const {
    uint64_t random = mix(seed_ ^ std::hash<std::string>()(open.name) ^ static_cast<uint64_t>(round_) << 32 ^
                          static_cast<uint64_t>(rank_) << 48);
    for (float& value : open.values) value = number(random = mix(random));
  }

  static Tensor tensor_of(const Open& open) {
    Tensor tensor =
        make_tensor(Collective::kAllreduce, open.name, {std::ssize(open.values)}, open.values.data());
    tensor.request.process_set = open.set;
    return tensor;
  }
  void finish(const Open& open) { finish(open, open.set == 0 ? outcome_.common : outcome_.own); }

  void finish(const Open& open, uint64_t& digest) {
    await(open.handle, open.name);
    note(open, digest);
    engine_.operations().release(open.handle);
  }

  // In one of the ways in which threads wait.
  void await(int64_t handle, const std::string& name) {
    const Deadline deadline = Deadline::after(60 * kSecond);
    const auto way = own_() % 4;
    while (way == 0 && engine_.operations().poll(handle) == 0 && !deadline.is_past(monotonic_now()))
      std::this_thread::yield();
    const Status status =
        way == 1 ? engine_.operations().wait(handle, deadline) : engine_.wait(handle, deadline);
    ASSERT_TRUE(status.is_ok()) << name << " in round " << round_ << ": " << status.why;
  }

  // Whatever the order in which results are looked at.
  void note(const Open& open, uint64_t& digest) {
    ++outcome_.tensors;
    const uint64_t seed = std::hash<std::string>()(open.name) ^ static_cast<uint64_t>(round_);
    digest += open.rows < 0 ? digest_of(seed, open.values) : digest_of(seed, result_of(engine_, open.handle));
  }

  std::span<float> memory(const std::string& name, size_t count) {
    std::span<float>& known = memory_[name];
    if (known.data() == nullptr && arena_ && std::hash<std::string>()(name) % 3 != 0)
      known = {static_cast<float*>(arena_->allocate(count * sizeof(float))), count};
    if (known.data() == nullptr) known = {own_memory_.emplace_back(count + 1).data(), count};
    return known;
  }

  Engine& engine_;
  Rank rank_, size_;
  uint64_t seed_;
  std::mt19937_64 own_;
  std::shared_ptr<memory::Arena> arena_;
  int round_ = 0;
  Outcome outcome_;
  std::vector<Open> open_;
  std::map<std::string, std::span<float>> memory_;
  std::deque<std::vector<float>> own_memory_;
};

struct World {
  const char* name;
  const char* hosts;  // a letter for each rank
  const char* transports;
  bool has_arena = false;
  bool has_sets = false;
  bool has_rows = false;
};

void PrintTo(const World& world, std::ostream* out) { *out << world.name; }

std::vector<Outcome> run_program(const World& world, uint64_t seed, const Env& extra) {
  const auto size = static_cast<Rank>(std::strlen(world.hosts));
  const Job job(size, world.transports, world.hosts);
  std::vector<Outcome> outcomes(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const Program program(seed, size, world.has_sets, world.has_rows);
      InitOptions options;
      if (world.has_sets) options.process_sets = {program.sets.begin() + 1, program.sets.end()};
      if (world.has_arena) options.arena = memory::Arena::create(64 << 20).value();
      const std::shared_ptr<memory::Arena> arena = options.arena;
      Result<Session> session = job.start(rank, extra, std::move(options));
      ASSERT_TRUE(session.is_ok()) << session.status().to_string();
      const std::shared_ptr<Engine> engine = Engine::start(std::move(session).value()).value();
      outcomes[static_cast<size_t>(rank)] = Side(*engine, rank, size, seed, arena).run(program);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

class RandomPlans : public testing::TestWithParam<World> {};

TEST_P(RandomPlans, programs_give_the_bits_of_unfused_negotiated_calls) {
  const char* const wanted = std::getenv("RUEDA_TEST_PROGRAMS");
  const int programs = wanted == nullptr ? 2 : std::atoi(wanted);
  const uint64_t chosen = std::random_device{}() % 1'000'000;
  Outcome total;
  for (int i = 0; i < programs && !HasFailure(); ++i) {
    const uint64_t seed = i % 2 == 0 ? static_cast<uint64_t>(i) : chosen + static_cast<uint64_t>(i);
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::vector<Outcome> planned = run_program(GetParam(), seed, {});
    const std::vector<Outcome> plain =
        run_program(GetParam(), seed, {{"RUEDA_PLANS", "0"}, {"RUEDA_FUSION_THRESHOLD", "0"}});
    for (size_t rank = 0; rank < planned.size(); ++rank) {
      EXPECT_EQ(planned[rank].common, planned[0].common) << "ranks 0 and " << rank << " differ";
      EXPECT_EQ(planned[rank].common, plain[rank].common) << "rank " << rank;
      EXPECT_EQ(planned[rank].own, plain[rank].own) << "rank " << rank << ": what not all ranks have";
      EXPECT_EQ(plain[rank].planned, 0);
    }
    total.steps += planned[0].steps;
    total.tensors += planned[0].tensors;
    total.planned += planned[0].planned;
    total.departures += planned[0].departures;
  }
  EXPECT_GT(total.planned, 0);
  EXPECT_GT(total.departures, 0);
  std::cout << "[ programs ] " << programs << " on " << GetParam().name << ": " << total.steps << " steps, "
            << total.tensors << " tensors, " << total.planned << " buckets of plans, " << total.departures
            << " departures\n";
}

INSTANTIATE_TEST_SUITE_P(Worlds, RandomPlans,
                         testing::Values(World{"two", "aa", "shm,tcp"}, World{"three", "aaa", "shm,tcp"},
                                         World{"four_buckets", "aaaa", "shm,tcp", true},
                                         World{"two_tcp", "aa", "tcp"}, World{"three_tcp", "aaa", "tcp"},
                                         World{"two_hosts_of_two", "aabb", "shm,tcp", true},
                                         World{"four_hosts", "abcd", "tcp"},
                                         World{"sets_of_three", "aaa", "shm,tcp", false, true},
                                         World{"sets_of_four", "aaaa", "shm,tcp", true, true},
                                         World{"sets_of_three_tcp", "aaa", "tcp", false, true},
                                         World{"sets_of_hosts_of_two", "aabb", "shm,tcp", true, true},
                                         World{"sets_of_ten", "aaaaaaaaaa", "shm,tcp", false, true},
                                         World{"sets_of_four_hosts", "abcd", "tcp", false, true},
                                         World{"rows_of_three", "aaa", "shm,tcp", false, true, true},
                                         World{"rows_of_three_tcp", "aaa", "tcp", false, true, true},
                                         World{"rows_of_hosts_of_two", "aabb", "shm,tcp", true, true, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rueda::runtime::plans_random_test
