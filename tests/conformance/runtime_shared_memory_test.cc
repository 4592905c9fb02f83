// Random programs whose tensors are parts of one run of memory and are in flight at once, in several process
// sets, on whole engines over every backend. Each rank has its tensors elsewhere, so on some ranks they
// overlap and on others not. The result is compared with a program that runs one operation after the other.
// RUEDA_TEST_SEED: runs only this one.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>

#include "engine_job.h"
#include "nccl_fixture.h"
#include "rank_devices.h"

namespace rueda::runtime::shared_memory_test {
namespace {

constexpr int kOperations = 10;  // in flight at once
constexpr int kSteps = 12;
constexpr int kRepeats = 3;  // of a step, so that plans are learned between those that share memory

// By id, the world first.
std::vector<std::vector<Rank>> sets_among(Rank ranks) {
  std::vector<Rank> world(static_cast<size_t>(ranks));
  std::iota(world.begin(), world.end(), 0);
  if (ranks == 1) return {world};
  if (ranks == 2) return {world, {0}, {1}};
  return {world, {0, ranks - 1}, {1, ranks - 1}};
}

struct Place {  // of one rank, in elements
  size_t input = 0, output = 0;
};

struct Step {
  Collective what = Collective::kAllreduce;
  ReduceOp op = ReduceOp::kSum;
  size_t count = 0;
  int32_t process_set = 0;
  std::vector<Rank> members = {};
  Rank root = 0;
  bool begins_group = true;   // otherwise it is a member of the group of the one before
  std::vector<Place> places;  // [ranks]
  [[nodiscard]] bool has(Rank rank) const { return std::ranges::count(members, rank) > 0; }
};

struct SharedWorld {
  const char* name;
  std::string hosts;
  const char* transports = "shm,tcp";
  Env settings = {};
  bool has_devices = false, has_arena = false;
};

void PrintTo(const SharedWorld& world, std::ostream* out) { *out << world.name; }

// The same on all ranks. is_apart: nothing overlaps.
std::vector<Step> make_steps(std::mt19937_64& random, Rank ranks, size_t elements, bool is_apart) {
  std::vector<Step> steps;
  const std::vector<std::vector<Rank>> sets = sets_among(ranks);
  for (int i = 0; i < kOperations; ++i) {
    Step step;
    const size_t set = is_apart || random() % 2 == 0 ? 0 : random() % sets.size();
    step.process_set = static_cast<int32_t>(set);
    step.members = sets[set];
    const uint64_t kind = random() % 8;
    if (!is_apart && kind == 6) step.what = Collective::kBroadcast;
    if (!is_apart && kind == 7) step.what = Collective::kAllgather;
    step.op = std::array{ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}[random() % 4];
    step.root = step.members[random() % step.members.size()];
    const size_t slot = elements / kOperations;
    step.count = is_apart ? slot : 1 + random() % (random() % 3 == 0 ? elements / 3 : slot);
    const bool may_continue =
        !is_apart && i > 0 && steps.back().what == step.what && steps.back().process_set == step.process_set;
    step.begins_group = !may_continue || random() % 2 == 0;
    const size_t common = random() % (elements - step.count + 1);
    for (Rank rank = 0; rank < ranks; ++rank) {
      Place place{.input = common, .output = common};
      if (random() % 2 == 0) place.input = place.output = random() % (elements - step.count + 1);
      const size_t other = random() % (elements - step.count + 1);
      if (random() % 3 == 0 && (other + step.count <= place.input || place.input + step.count <= other))
        place.output = other;
      if (is_apart) place.input = place.output = static_cast<size_t>(i) * slot;
      step.places.push_back(place);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

using Elements = std::vector<int32_t>;

int32_t combine(ReduceOp op, int32_t a, int32_t b) {
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

// What an operation takes from the memory of its ranks; an allgather keeps it, the others write it.
Elements run_alone(const Step& step, std::vector<Elements>& memory) {
  Elements result;
  for (const Rank member : step.members) {
    const auto rank = static_cast<size_t>(member);
    const auto begin = memory[rank].begin() + static_cast<ptrdiff_t>(step.places[rank].input);
    const Elements mine(begin, begin + static_cast<ptrdiff_t>(step.count));
    if (step.what == Collective::kAllgather)
      result.insert(result.end(), mine.begin(), mine.end());
    else if (result.empty() || (step.what == Collective::kBroadcast && member == step.root))
      result = mine;
    else if (step.what == Collective::kAllreduce)
      for (size_t i = 0; i < mine.size(); ++i) result[i] = combine(step.op, result[i], mine[i]);
  }
  if (step.what != Collective::kAllgather)
    for (const Rank rank : step.members)
      std::ranges::copy(result, memory[static_cast<size_t>(rank)].begin() +
                                    static_cast<ptrdiff_t>(step.places[static_cast<size_t>(rank)].output));
  return result;
}

// One rank's memory, and its tensors in it.
class OneSide {
 public:
  OneSide(const SharedWorld& world, Engine& engine, Rank rank, size_t elements, memory::Arena* arena)
      : engine_(engine), rank_(rank), bytes_(elements * sizeof(int32_t)) {
    if (world.has_devices) devices_ = std::make_unique<cuda_test::RankDevices>(rank);
    if (devices_ != nullptr)
      data_ = devices_->allocate(rank % 2, bytes_);
    else if (arena != nullptr)
      data_ = static_cast<std::byte*>(arena->allocate(bytes_));
    else
      data_ = (own_ = std::vector<std::byte>(bytes_)).data();
  }

  void fill(const Elements& values) {
    const auto* const raw = reinterpret_cast<const std::byte*>(values.data());
    if (devices_ != nullptr)
      filled_ = devices_->fill_later(rank_ % 2, data_, rueda::Bytes(raw, raw + bytes_));
    else
      std::copy(raw, raw + bytes_, data_);
  }

  void submit(const std::vector<Step>& steps, const std::string& prefix) {
    for (size_t begin = 0, end = 0; begin < steps.size(); begin = end) {
      for (end = begin + 1; end < steps.size() && !steps[end].begins_group; ++end) {
      }
      if (!steps[begin].has(rank_)) continue;
      std::vector<Tensor> group;
      for (size_t i = begin; i < end; ++i) {
        group.push_back(tensor(steps[i], prefix + std::to_string(i)));
        group.back().request.group_index = static_cast<int32_t>(i - begin);
        group.back().request.group_size = static_cast<int32_t>(end - begin);
        group.back().request.group_name = prefix + std::to_string(begin);
      }
      const Result<int64_t> handle = engine_.submissions().submit(std::move(group));
      ASSERT_TRUE(handle.is_ok()) << handle.status().why;
      for (size_t i = begin; i < end; ++i) handles_.emplace_back(handle.value(), i - begin);
    }
  }

  // Waits in an order of the rank's own. gathered: [operations] the results of allgathers.
  void finish(std::mt19937_64& own, std::vector<Elements>& gathered) {
    std::vector<size_t> order(handles_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::shuffle(order, own);
    for (const size_t i : order) {
      const auto [handle, index] = handles_[i];
      const bool is_on_stream = devices_ != nullptr && own() % 2 == 0;
      const Deadline deadline = Deadline::after(60 * kSecond);
      const Status ended = is_on_stream
                               ? engine_.wait_on_stream(handle, devices_->stream().handle(), deadline)
                               : engine_.wait(handle, deadline);
      ASSERT_TRUE(ended.is_ok()) << "rank " << rank_ << ", operation " << i << ": " << ended.why;
    }
    if (devices_ != nullptr) devices_->stream().synchronize();
    for (const auto& [handle, index] : std::exchange(handles_, {})) {
      if (const std::shared_ptr<Operation> operation = engine_.operations().find(handle)) {
        EXPECT_TRUE(engine_.wait(handle, Deadline::after(60 * kSecond)).is_ok());
        const Tensor& tensor = operation->tensors[index];
        const auto* const result = static_cast<const int32_t*>(tensor.output);
        gathered.emplace_back(result,
                              result + std::accumulate(tensor.result_shape.begin(), tensor.result_shape.end(),
                                                       int64_t{1}, std::multiplies<>()));
        if (index + 1 == operation->tensors.size()) engine_.operations().release(handle);
      }
    }
  }

  [[nodiscard]] Elements values() const {
    Elements out(bytes_ / sizeof(int32_t));
    std::memcpy(out.data(), data_, bytes_);
    return out;
  }

 private:
  Tensor tensor(const Step& step, const std::string& name) {
    const Place place = step.places[static_cast<size_t>(rank_)];
    Tensor made = make_tensor(step.what, name, {static_cast<int64_t>(step.count)},
                              data_ + place.input * sizeof(int32_t));
    if (step.what != Collective::kAllgather) made.output = data_ + place.output * sizeof(int32_t);
    made.request.process_set = step.process_set;
    made.request.dtype = DType::kInt32;
    made.request.op = step.op;
    made.request.root = step.what == Collective::kBroadcast ? step.root : -1;
    if (devices_ == nullptr) return made;
    made.memory = filled_;
    made.request.memory = MemoryKind::kDevice;
    made.request.device = filled_.device;
    return made;
  }

  Engine& engine_;
  Rank rank_;
  size_t bytes_;
  std::unique_ptr<cuda_test::RankDevices> devices_;
  std::vector<std::byte> own_;
  std::byte* data_ = nullptr;
  Memory filled_;
  std::vector<std::pair<int64_t, size_t>> handles_;  // [operations] and the place in its group
};

void run_rank(const SharedWorld& world, Engine& engine, Rank rank, uint64_t seed, memory::Arena* arena) {
  const auto ranks = static_cast<Rank>(world.hosts.size());
  std::mt19937_64 random(seed), own(seed + 1 + static_cast<uint64_t>(rank));
  const size_t elements = std::array<size_t, 3>{200, 5000, 60'000}[seed % 3];
  OneSide side(world, engine, rank, elements, arena);
  const std::vector<Step> plain = make_steps(random, ranks, elements, true);
  for (int i = 0; i < kSteps * kRepeats && !testing::Test::HasFailure(); ++i) {
    const bool is_apart = i % kRepeats != 0;
    const std::vector<Step> steps = is_apart ? plain : make_steps(random, ranks, elements, false);
    std::vector<Elements> memory(static_cast<size_t>(ranks), Elements(elements));
    for (Elements& each : memory)
      for (int32_t& value : each) value = static_cast<int32_t>(random());
    side.fill(memory[static_cast<size_t>(rank)]);
    // Names recur in plain steps, so that these are planned.
    side.submit(steps, is_apart ? "p" : "s" + std::to_string(i) + ".");
    std::vector<Elements> expected, found;  // of the operations in which this rank takes part
    std::vector<Collective> kinds;
    for (const Step& step : steps) {
      Elements result = run_alone(step, memory);
      if (!step.has(rank)) continue;
      expected.push_back(std::move(result));
      kinds.push_back(step.what);
    }
    side.finish(own, found);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t at = 0; at < kinds.size(); ++at) {
      if (kinds[at] != Collective::kAllgather) continue;
      ASSERT_TRUE(found[at] == expected[at]) << "seed " << seed << ", step " << i << ", operation " << at;
    }
    ASSERT_TRUE(side.values() == memory[static_cast<size_t>(rank)])
        << "seed " << seed << ", step " << i << ", rank " << rank;
  }
}

class SharedMemoryPrograms : public testing::TestWithParam<SharedWorld> {};

TEST_P(SharedMemoryPrograms, give_what_one_operation_after_the_other_gives) {
  const SharedWorld& world = GetParam();
  const char* const chosen = std::getenv("RUEDA_TEST_SEED");
  static const uint64_t seed_of_run = std::random_device{}() % 1'000'000'000;
  const uint64_t seed = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : seed_of_run;
  Env settings = world.settings;
  if (world.has_devices) settings["RUEDA_CUDA_LIBRARY"] = RUEDA_FAKE_CUDA;
  if (settings.contains("RUEDA_NCCL_LIBRARY")) nccl_test::control();  // loads it before there are threads
  const char* const wanted = std::getenv("RUEDA_TEST_PROGRAMS");      // sanitizers run fewer
  const uint64_t programs = chosen != nullptr || wanted != nullptr ? 1 : 3;
  for (uint64_t i = 0; i < programs && !HasFailure(); ++i) {
    const Job job(static_cast<Rank>(world.hosts.size()), world.transports, world.hosts);
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < job.size(); ++rank) {
      threads.emplace_back([&, rank] {
        InitOptions options;
        const std::vector<std::vector<Rank>> sets = sets_among(job.size());
        options.process_sets.assign(sets.begin() + 1, sets.end());
        if (world.has_arena) options.arena = memory::Arena::create(64 << 20).value();
        const std::shared_ptr<memory::Arena> arena = options.arena;
        Result<Session> session = job.start(rank, settings, std::move(options));
        ASSERT_TRUE(session.is_ok()) << session.status().to_string();
        const std::shared_ptr<Engine> engine = Engine::start(std::move(session).value()).value();
        run_rank(world, *engine, rank, seed + i, arena.get());
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (HasFailure()) std::cout << "to repeat this: RUEDA_TEST_SEED=" << seed + i << "\n";
  }
}

TEST(SharedMemory, an_output_that_overlaps_its_own_input_in_part_is_refused_and_nothing_is_written) {
  Job(2, "shm,tcp").run([](Engine& engine, Rank) {
    std::vector<float> memory(20, 1.0f);
    Tensor tensor = make_tensor(Collective::kAllreduce, "parts", {10}, memory.data());
    tensor.output = memory.data() + 9;
    const Status refused = run_one(engine, std::move(tensor));
    EXPECT_EQ(refused.code, Code::kInvalidArgument);
    EXPECT_THAT(refused.why, testing::HasSubstr("The output of tensor parts overlaps its input in part"));
    EXPECT_EQ(memory, std::vector<float>(20, 1.0f));
    tensor = make_tensor(Collective::kAllreduce, "halves", {10}, memory.data());
    tensor.output = memory.data() + 10;
    EXPECT_TRUE(run_one(engine, std::move(tensor)).is_ok()) << "halves touch and do not overlap";
    EXPECT_EQ(memory[10], 2.0f);
  });
}

Env gpu(const char* operations, Env more = {}) {
  more["RUEDA_GPU_OPERATIONS"] = operations;
  if (std::string(operations) == "nccl") more["RUEDA_NCCL_LIBRARY"] = nccl_test::kLibrary;
  return more;
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, SharedMemoryPrograms,
    testing::Values(
        SharedWorld{"one_rank", "a"}, SharedWorld{"local_two", "aa"}, SharedWorld{"local_three", "aaa"},
        SharedWorld{.name = "local_arenas", .hosts = "aaa", .has_arena = true},
        SharedWorld{"tcp_two", "aa", "tcp"}, SharedWorld{"tcp_three", "aaa", "tcp"},
        SharedWorld{"hosts", "aab"},
        SharedWorld{.name = "staged", .hosts = "aa", .settings = gpu("staged"), .has_devices = true},
        SharedWorld{.name = "staged_hosts", .hosts = "aab", .settings = gpu("staged"), .has_devices = true},
        SharedWorld{.name = "cuda_ipc",
                    .hosts = "aa",
                    .settings = gpu("staged", {{"RUEDA_CUDA_IPC", "on"}}),
                    .has_devices = true},
        SharedWorld{.name = "nccl", .hosts = "aa", .settings = gpu("nccl"), .has_devices = true},
        SharedWorld{.name = "nccl_hosts", .hosts = "ab", .settings = gpu("nccl"), .has_devices = true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rueda::runtime::shared_memory_test
