// Random programs of sums with wire types on whole engines: every result, and every residual where a program
// looks at them, is compared with a model in one process. One program mixes joins, process sets that come and
// go, refused operations, learned plans that hold or end, NaN, changes of scale, and a change of epoch.
// RUEDA_TEST_PROGRAMS: how many. RUEDA_TEST_SEED: runs only this one.
#include <cstdlib>
#include <deque>
#include <iostream>
#include <optional>

#include "engine_job.h"
#include "residual_model.h"
#include "residual_program.h"

namespace rueda::runtime::residuals_random_test {
namespace {

using namespace residual_program;

struct Outcome {
  std::map<size_t, std::vector<Bytes>> checks;   // by round and rank: what save() gives
  std::map<size_t, std::vector<int64_t>> bytes;  // the same: of all residuals
  int64_t planned = 0, departures = 0;
};

// One rank's side of a program, on one engine after another.
class Side {
 public:
  Side(const Program& program, const Expected& expected, Rank rank, Outcome& outcome, std::mutex& mutex)
      : program_(program),
        expected_(expected),
        rank_(rank),
        own_(mix(program.seed + static_cast<uint64_t>(rank))),
        outcome_(outcome),
        mutex_(mutex) {}

  // Up to the end of an epoch; true if another one follows.
  bool run(Engine& engine) {
    engine_ = &engine;
    if (carried_) restore(*std::exchange(carried_, std::nullopt));
    bool is_next = false;
    while (round_ < program_.rounds.size() && !is_next && !is_broken_) {
      const Round& round = program_.rounds[round_];
      is_next = round.kind == Kind::kEpoch;
      if (round.is_present.empty() || round.is_present[static_cast<size_t>(rank_)]) take_part(round);
      ++round_;
    }
    // The first rank that leaves ends the job for all.
    if (!is_broken_) check(run_one(engine, make_tensor(Collective::kBarrier, "end", {}, nullptr)));
    const std::lock_guard lock(mutex_);
    outcome_.planned += engine.counters().planned_batches;
    outcome_.departures += engine.counters().departures;
    return is_next && !is_broken_;
  }

 private:
  struct Open {
    const Item* item = nullptr;
    std::span<float> values = {};
    int64_t handle = -1;
    bool is_refused = false;
  };

  void take_part(const Round& round) {
    std::vector<const Item*> items;
    for (const Item& item : round.items)
      if (std::ranges::count(program_.members(item, round), rank_) > 0) items.push_back(&item);
    switch (round.kind) {
      case Kind::kShuffled:
        std::ranges::shuffle(items, own_);
        return step(round, items);
      case Kind::kOneByOne:
        for (const Item* const item : items) step(round, {item});
        return;
      case Kind::kHalf: {
        // The same for all ranks, or two would wait for each other.
        const auto half = std::ranges::partition_point(items, [&round](const Item* item) {
          return item - round.items.data() < std::ssize(round.items) / 2;
        });
        step(round, {items.begin(), half});
        return step(round, {half, items.end()});
      }
      case Kind::kGroup:
        return group(round, items);
      case Kind::kLate:
        if (round.odd == rank_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        [[fallthrough]];
      case Kind::kStep:
      case Kind::kRefused:
        return step(round, items);
      case Kind::kJoin:
        return check(run_one(*engine_, make_tensor(Collective::kJoin, "join", {}, nullptr)));
      case Kind::kBarrier:
        return check(run_one(*engine_, make_tensor(Collective::kBarrier, "barrier", {}, nullptr)));
      default:
        return change(round);
    }
  }

  void change(const Round& round) {
    ResidualStore& residuals = engine_->submissions().residuals();
    switch (round.kind) {
      case Kind::kAddSet: {
        std::erase_if(times_,
                      [](const auto& one) { return one.first.ends_with("@2"); });  // others were in it
        const Result<int32_t> id = engine_->add_process_set(round.dynamic);
        check(id.status());
        EXPECT_TRUE(!id.is_ok() || id.value() == static_cast<int32_t>(Set::kDynamic));
        return;
      }
      case Kind::kRemoveSet:
        return check(engine_->remove_process_set(static_cast<int32_t>(Set::kDynamic)));
      case Kind::kRescale:
        EXPECT_TRUE(residuals.rescale(round.factor));
        return;
      case Kind::kSave:
        saved_ = save();
        return;
      case Kind::kRestore:
        return restore(saved_);
      case Kind::kCheck: {
        Bytes all = residuals.save({.process_set = 0, .names = {}, .is_all = true},
                                   [](int32_t /*set*/) { return uint64_t{1}; });
        const std::lock_guard lock(mutex_);
        outcome_.checks[round_].resize(program_.world.size());
        outcome_.checks[round_][static_cast<size_t>(rank_)] = std::move(all);
        outcome_.bytes[round_].resize(program_.world.size());
        outcome_.bytes[round_][static_cast<size_t>(rank_)] = residuals.bytes();
        return;
      }
      default:  // kEpoch
        if (round.carries) carried_ = save();
    }
  }

  void step(const Round& round, const std::vector<const Item*>& items) {
    std::vector<Open> all;
    for (const Item* const item : items) {
      Open& open = all.emplace_back(Open{.item = item});
      open.handle = must_submit(*engine_, tensor_of(round, open));
    }
    for (const Open& open : all) {
      const Status status = await(open.handle);
      if (open.is_refused)
        EXPECT_THAT(status.why, testing::StartsWith("Mismatched")) << here(*open.item);
      else
        compare(open, status);
      engine_->operations().release(open.handle);
    }
  }

  void group(const Round& round, const std::vector<const Item*>& items) {
    std::vector<Open> all;
    std::vector<const Item*> others;
    std::vector<Tensor> tensors;
    for (const Item* const item : items) {
      if (item->set != Set::kWorld) {
        others.push_back(item);
        continue;
      }
      tensors.push_back(tensor_of(round, all.emplace_back(Open{.item = item})));
    }
    if (!tensors.empty()) {
      const Result<int64_t> handle = engine_->submissions().submit(std::move(tensors));
      check(handle.status());
      if (is_broken_) return;
      const Status status = await(handle.value());
      for (const Open& open : all) compare(open, status);
      engine_->operations().release(handle.value());
    }
    step(round, others);
  }

  Tensor tensor_of(const Round& round, Open& open) {
    Item item = *open.item;
    open.is_refused = round.kind == Kind::kRefused && &round.items[0] == open.item;
    const bool is_odd = open.is_refused && round.odd == rank_;
    if (is_odd && !round.is_other_wire) ++item.count;
    if (is_odd && round.is_other_wire) item.wire = item.wire == Wire::kInt8 ? Wire::kBfloat16 : Wire::kInt8;
    open.values = memory(item);
    std::ranges::copy(program_.input(round_, item, rank_), open.values.begin());
    Tensor tensor = make_tensor(Collective::kAllreduce, item.name, {item.count}, open.values.data());
    control::TensorRequest& request = tensor.request;
    if (item.is_numbered) {
      request.numbered_at = static_cast<uint16_t>(request.name.size());
      request.name += std::to_string(++times_[key_of(item)]);
    }
    request.process_set = static_cast<int32_t>(item.set);
    request.op = item.is_average ? ReduceOp::kAverage : ReduceOp::kSum;
    request.prescale = item.prescale;
    request.postscale = item.postscale;
    request.wire = item.wire;
    tensor.has_feedback = item.has_feedback;
    return tensor;
  }

  // The same for a name each time.
  std::span<float> memory(const Item& item) {
    std::vector<float>& known = memory_[key_of(item)];
    if (known.size() < static_cast<size_t>(item.count)) known.resize(static_cast<size_t>(item.count) + 1);
    return {known.data(), static_cast<size_t>(item.count)};
  }

  Status await(int64_t handle) {
    const Deadline deadline = Deadline::after(60 * kSecond);
    return own_() % 2 == 0 ? engine_->operations().wait(handle, deadline) : engine_->wait(handle, deadline);
  }

  // Reports only the first difference of a rank; one whose call failed goes no further.
  void compare(const Open& open, const Status& status) {
    check(status);
    const Floats& wanted = expected_.results.at({round_, key_of(*open.item)});
    const Floats found(open.values.begin(), open.values.end());
    if (is_broken_) return;
    is_broken_ = !wire_test::is_equal_bits(found, wanted);
    ASSERT_FALSE(is_broken_) << here(*open.item) << ": another result than the model's";
  }
  void check(const Status& status) {
    EXPECT_TRUE(status.is_ok() || is_broken_)
        << "rank " << rank_ << ", round " << round_ << ": " << status.why;
    is_broken_ = is_broken_ || !status.is_ok();
  }
  [[nodiscard]] std::string here(const Item& item) const {
    return "rank " + std::to_string(rank_) + ", round " + std::to_string(round_) + " (" +
           std::to_string(static_cast<int>(program_.rounds[round_].kind)) + "), " + key_of(item) + " of " +
           std::to_string(item.count) + " as " + std::string(name_of(item.wire));
  }

  // As the C interface does.
  [[nodiscard]] Placements placements() const {
    return [this](int32_t set) -> uint64_t {
      const auto group = engine_->groups().find(set);
      uint64_t placement = 1;
      if (group)
        for (const Rank member : group->members) placement = mix(placement + static_cast<uint64_t>(member));
      return group ? placement : 0;
    };
  }
  [[nodiscard]] Bytes save() const {
    return engine_->submissions().residuals().save({.process_set = 0, .names = {}, .is_all = true},
                                                   placements());
  }
  void restore(const Bytes& saved) {
    check(engine_->submissions().residuals().restore(saved, placements()).status());
  }

  const Program& program_;
  const Expected& expected_;
  Rank rank_;
  std::mt19937_64 own_;
  Outcome& outcome_;
  std::mutex& mutex_;
  Engine* engine_ = nullptr;
  size_t round_ = 0;
  bool is_broken_ = false;
  Bytes saved_;
  std::optional<Bytes> carried_;
  std::map<std::string, int> times_;  // that a numbered tensor was submitted
  std::map<std::string, std::vector<float>> memory_;
};

size_t whole_blocks(int64_t count) {
  return static_cast<size_t>((count + kWireBlock - 1) / kWireBlock * kWireBlock);
}

// What the ranks `of` keep of a tensor, element by element; each element is kept by one of them.
Floats total_of(const std::vector<Bytes>& saved, const std::vector<Rank>& of, Set set,
                const std::string& name, int64_t count, bool is_result) {
  Floats total(static_cast<size_t>(count), 0.0F);
  for (const Rank rank : of) {
    ResidualStore store;
    EXPECT_TRUE(
        store.restore(saved[static_cast<size_t>(rank)], [](int32_t /*set*/) { return uint64_t{1}; }).is_ok());
    auto bucket = std::make_shared<control::Bucket>();
    bucket->process_set = static_cast<int32_t>(set);
    bucket->entries.push_back({.name = name, .shape = {count}, .rows = {}});
    Batch batch;
    batch.bucket = std::move(bucket);
    batch.segments.push_back({.count = count});
    batch.tensors.emplace_back();
    EXPECT_TRUE(store.attach(batch).is_ok());
    const backend::Residual& kept = batch.segments[0].residual;
    for (size_t i = 0; i < total.size(); ++i) total[i] += (is_result ? kept.owned : kept.sent)[i];
  }
  return total;
}

Floats or_zeros(const Floats& values, int64_t count) {
  return values.empty() ? Floats(static_cast<size_t>(count), 0.0F) : values;
}

void expect_residuals(const Program& program, const Residuals& wanted, const std::vector<Bytes>& saved,
                      const std::vector<int64_t>& bytes) {
  std::vector<int64_t> expected_bytes(program.world.size(), 0);
  for (const auto& [key, kept] : wanted) {
    SCOPED_TRACE("tensor " + key.second + " of set " + std::to_string(static_cast<int>(key.first)));
    std::map<char, std::vector<Rank>> members;
    std::string letters;
    for (const Rank rank : kept.members) {
      const char letter = program.hosts[static_cast<size_t>(rank)];
      if (members[letter].empty()) letters += letter;
      members[letter].push_back(rank);
      expected_bytes[static_cast<size_t>(rank)] +=
          static_cast<int64_t>(2 * sizeof(float) * whole_blocks(kept.count));
    }
    for (size_t host = 0; host < letters.size(); ++host) {
      const Floats sent = kept.model.sent.empty() ? Floats() : kept.model.sent[host];
      ASSERT_EQ(total_of(saved, members[letters[host]], key.first, key.second, kept.count, false),
                or_zeros(sent, kept.count))
          << "what host " << letters[host] << " has left to send";
    }
    ASSERT_EQ(total_of(saved, kept.members, key.first, key.second, kept.count, true),
              or_zeros(kept.model.owned, kept.count))
        << "what owners have left to send";
  }
  // No less: what else has memory, as a tensor whose call was cancelled before it ran, is not followed here.
  for (const Rank rank : program.world)
    EXPECT_GE(bytes[static_cast<size_t>(rank)], expected_bytes[static_cast<size_t>(rank)]) << "rank " << rank;
}

// None of them may change a bit.
Env settings_of(uint64_t seed) {
  Env settings{{"RUEDA_DYNAMIC_PROCESS_SETS", "1"}};
  std::mt19937_64 random(mix(seed));
  const auto maybe = [&](const char* name, std::vector<const char*> values) {
    if (random() % 2 == 0) settings[name] = values[random() % values.size()];
  };
  maybe("RUEDA_PLANS", {"0", "1", "1"});
  maybe("RUEDA_FUSION_THRESHOLD", {"0", "6000", "20000"});
  maybe("RUEDA_CHUNK_BYTES", {"1024", "5000"});
  return settings;
}

Outcome run_program(const Program& program, const Expected& expected) {
  const auto size = static_cast<Rank>(program.hosts.size());
  const auto epochs = 1 + std::ranges::count(program.rounds, Kind::kEpoch, &Round::kind);
  std::deque<Job> jobs;
  for (int64_t i = 0; i < epochs; ++i) jobs.emplace_back(size, "shm,tcp", program.hosts);
  const Env settings = settings_of(program.seed);
  Outcome outcome;
  std::mutex mutex;
  std::vector<std::thread> threads;
  std::deque<std::vector<RendezvousPoint>> places;  // [epoch][rank], longer than any rank's init
  for (int64_t i = 0; i < epochs; ++i) places.emplace_back(program.world.size());
  for (Rank rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Side side(program, expected, rank, outcome, mutex);
      for (size_t epoch = 0; epoch < jobs.size(); ++epoch) {
        RendezvousPoint& place = places[epoch][static_cast<size_t>(rank)];
        Result<Session> session =
            jobs[epoch].start_at(place, rank, settings, {.process_sets = {program.fixed}});
        ASSERT_TRUE(session.is_ok()) << session.status().to_string();
        const std::shared_ptr<Engine> engine = Engine::start(std::move(session).value()).value();
        if (!side.run(*engine)) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

TEST(RandomResiduals, programs_give_the_bits_and_the_residuals_of_a_model_in_one_process) {
  const char* const chosen = std::getenv("RUEDA_TEST_SEED");
  const char* const wanted = std::getenv("RUEDA_TEST_PROGRAMS");
  const int programs = chosen != nullptr ? 1 : wanted == nullptr ? 24 : std::max(1, std::atoi(wanted));
  const uint64_t first = std::random_device{}() % 1'000'000'000;
  Expected all;
  int64_t results = 0, planned = 0, departures = 0, checks = 0;
  for (int i = 0; i < programs && !HasFailure(); ++i) {
    // Every other one is the same in every run.
    const auto number = static_cast<uint64_t>(i);
    const uint64_t seed = chosen != nullptr ? std::strtoull(chosen, nullptr, 10)
                          : i % 2 == 0      ? number
                                            : first + number;
    const Program program(seed);
    const Expected expected = Oracle(program).run();
    const Outcome outcome = run_program(program, expected);
    for (const auto& [round, saved] : outcome.checks) {
      if (HasFailure()) break;
      SCOPED_TRACE("round " + std::to_string(round));
      expect_residuals(program, expected.residuals.at(round), saved, outcome.bytes.at(round));
      ++checks;
    }
    if (HasFailure()) std::cout << "to repeat this: RUEDA_TEST_SEED=" << seed << "\n";
    results += static_cast<int64_t>(expected.results.size());
    planned += outcome.planned;
    departures += outcome.departures;
    all.encoded += expected.encoded;
    all.refused += expected.refused;
    all.joined += expected.joined;
    all.removed += expected.removed;
  }
  const int64_t least = std::min({planned, departures, all.refused, all.joined, all.removed, checks});
  EXPECT_TRUE(least > 0 || programs <= 10) << "a part of the programs was in none";
  std::cout << "[ programs ] " << programs << ": " << results << " sums, " << all.encoded
            << " of them encoded; " << all.refused << " refused, " << all.joined << " joins, " << all.removed
            << " process sets removed, " << planned << " buckets of plans, " << departures << " departures, "
            << checks << " comparisons of residuals\n";
}

}  // namespace
}  // namespace rueda::runtime::residuals_random_test
