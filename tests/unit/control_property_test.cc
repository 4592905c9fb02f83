// Random programs of several ranks in random interleavings: what the engine relies on must hold
// for all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "control_fixture.h"
#include "rueda/base/log.h"

namespace rueda::control::property_test {
namespace {

using Random = std::mt19937_64;

int pick(Random& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

uint64_t fresh_seed() {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %lu\n", seed);
  return seed;
}

struct Submit {
  Rank rank = 0;  // -1: a round ends
  Tensors requests;
};

struct Program {
  CoordinatorOptions options;
  std::vector<Tensors> units;  // agreed by all members of their set: one tensor, or a group
  std::vector<Submit> arrivals;
};

TensorRequest random_tensor(Random& random, std::string name, int32_t set, const std::vector<Rank>& members) {
  const Collective kinds[] = {Collective::kAllreduce, Collective::kAllreduce,     Collective::kAllgather,
                              Collective::kBroadcast, Collective::kReducescatter, Collective::kAlltoall};
  TensorRequest request = collective(kinds[pick(random, 0, 5)], std::move(name), {pick(random, 0, 40)});
  if (request.what == Collective::kAlltoall) request.shape[0] *= static_cast<int64_t>(members.size());
  request.root = request.what == Collective::kBroadcast ? members[0] : -1;
  request.dtype = pick(random, 0, 3) == 0 ? DType::kInt32 : DType::kFloat32;
  request.process_set = set;
  return request;
}

Program random_program(Random& random) {
  Program program;
  const Rank size = pick(random, 1, 5);
  program.options = world_of(size);
  program.options.fusion_bytes = pick(random, 0, 3) * 100;
  const int64_t alone_bytes = pick(random, 0, 2) * 60;
  program.options.traits_of = [=](int32_t, const Terms&) {
    return BackendTraits{.alone_bytes = alone_bytes};
  };
  program.options.group_fusion_disabled = pick(random, 0, 1) == 0;
  std::vector<Rank> world(static_cast<size_t>(size));
  std::iota(world.begin(), world.end(), 0);
  if (size > 2) program.options.process_sets = {{1, {0, size - 1}}, {3, {1, 2}}};
  std::vector<std::vector<Tensors>> queues(static_cast<size_t>(size));
  for (int i = pick(random, 1, 30); i > 0; --i) {
    auto set = program.options.process_sets.begin();
    const int choice = pick(random, 0, 3);
    const bool is_world = set == program.options.process_sets.end() || choice > 1;
    if (!is_world) std::advance(set, choice);
    const std::vector<Rank>& members = is_world ? world : set->second;
    Tensors unit;
    for (int k = pick(random, 0, 2) == 0 ? pick(random, 2, 6) : 1; k > 0; --k)
      unit.push_back(random_tensor(random, "t" + std::to_string(i), is_world ? 0 : set->first, members));
    if (unit.size() > 1) unit = group("g" + std::to_string(i), unit);
    program.units.push_back(unit);
    for (const Rank rank : members) queues[static_cast<size_t>(rank)].push_back(unit);
  }
  for (auto& queue : queues) std::shuffle(queue.begin(), queue.end(), random);
  while (std::any_of(queues.begin(), queues.end(), [](const auto& queue) { return !queue.empty(); })) {
    const Rank rank = pick(random, 0, size - 1);
    auto& queue = queues[static_cast<size_t>(rank)];
    Submit submit{rank, {}};
    for (int n = pick(random, 1, 4); n > 0 && !queue.empty(); --n) {
      submit.requests.insert(submit.requests.end(), queue.back().begin(), queue.back().end());
      queue.pop_back();
    }
    program.arrivals.push_back(std::move(submit));
    if (pick(random, 0, 2) == 0) program.arrivals.push_back({-1, {}});
  }
  program.arrivals.push_back({-1, {}});
  return program;
}

std::vector<Response> execute(const Program& program) {
  Coordinator coordinator(program.options);
  std::vector<Response> out;
  for (const Submit& submit : program.arrivals) {
    if (submit.rank >= 0) {
      coordinator.submit(submit.rank, submit.requests, 0, nullptr);
      continue;
    }
    for (Response& response : coordinator.take_ready()) out.push_back(std::move(response));
  }
  EXPECT_EQ(coordinator.pending_summary(), "");
  return out;
}

int64_t fused_bytes(const Response& response) {
  int64_t bytes = 0;
  for (const Entry& entry : as<Bucket>(response).entries) {
    const bool is_gather = as<Bucket>(response).what == Collective::kAllgather;
    bytes +=
        4 * (is_gather ? std::accumulate(entry.rows.begin(), entry.rows.end(), int64_t{0}) : entry.shape[0]);
  }
  return bytes;
}

TEST(CoordinatorProperties, every_name_runs_exactly_once_below_the_threshold_and_deterministically) {
  Random random(fresh_seed());
  for (int i = 0; i < 500; ++i) {
    const Program program = random_program(random);
    const std::vector<Response> responses = execute(program);
    std::multiset<std::string> ran;
    for (const Response& response : responses) {
      ASSERT_TRUE(is<Bucket>(response)) << error_of(response);
      EXPECT_TRUE(as<Bucket>(response).entries.size() == 1 ||
                  fused_bytes(response) <= program.options.fusion_bytes);
      for (const Entry& entry : as<Bucket>(response).entries) ran.insert(entry.name);
    }
    std::multiset<std::string> submitted;
    for (const auto& unit : program.units)
      for (const TensorRequest& request : unit) submitted.insert(request.name);
    EXPECT_EQ(ran, submitted);
    EXPECT_EQ(execute(program), responses);
  }
}

TEST(CoordinatorProperties, members_of_a_group_run_in_neighbouring_responses) {
  Random random(fresh_seed());
  for (int i = 0; i < 300; ++i) {
    const Program program = random_program(random);
    const std::vector<Response> responses = execute(program);
    for (const auto& unit : program.units) {
      size_t first = responses.size();
      size_t last = 0;
      std::set<size_t> used;
      for (size_t r = 0; r < responses.size(); ++r)
        for (const Entry& entry : as<Bucket>(responses[r]).entries)
          for (const TensorRequest& member : unit)
            if (entry.name == member.name) {
              first = std::min(first, r);
              last = std::max(last, r);
              used.insert(r);
            }
      EXPECT_EQ(used.size(), last - first + 1);
    }
  }
}

// Anything at all, from any rank: no crash, and every complete name still leaves the table.
TEST(CoordinatorProperties, nonsense_never_crashes) {
  Random random(fresh_seed());
  const LogLevel before = log_level();
  set_log_level(LogLevel::kFatal);
  for (int i = 0; i < 2000; ++i) {
    CoordinatorOptions options = world_of(pick(random, 1, 3));
    options.process_sets = {{1, {0}}};
    Coordinator coordinator(options);
    for (int n = pick(random, 1, 60); n > 0; --n) {
      TensorRequest request = allreduce(std::string(1, static_cast<char>('a' + pick(random, 0, 3))), {});
      request.what = static_cast<Collective>(pick(random, 0, 6));
      request.op = static_cast<ReduceOp>(pick(random, 0, 5));
      for (int d = pick(random, 0, 2); d > 0; --d) request.shape.push_back(pick(random, -1, 3));
      request.process_set = pick(random, -1, 2);
      request.root = pick(random, -1, 3);
      for (int s = pick(random, 0, 3); s > 0; --s) request.splits.push_back(pick(random, -1, 2));
      request.group_size = pick(random, -1, 3);
      request.group_index = pick(random, -1, 3);
      request.group_name = std::string(1, static_cast<char>('a' + pick(random, 0, 3)));
      request.shares_memory = pick(random, 0, 1) == 1;
      for (int s = pick(random, 0, 2); s > 0; --s)
        request.after.push_back(
            {pick(random, -1, 2), std::string(1, static_cast<char>('a' + pick(random, 0, 3)))});
      AddSet added;
      for (int s = pick(random, 0, 2); s > 0; --s) added.ranks.push_back(pick(random, -1, 3));
      const RemoveSet removed{.id = pick(random, -1, 2)};
      const std::vector<Request> kinds = {request, SetChange{.name = request.name, .what = added},
                                          SetChange{.name = request.name, .what = removed}};
      const auto kind = static_cast<size_t>(std::max(0, pick(random, -6, 2)));
      coordinator.submit(pick(random, -1, options.world_size), {kinds[kind]}, n, nullptr);
      if (pick(random, 0, 4) == 0) coordinator.take_ready();
      if (pick(random, 0, 9) == 0) coordinator.check_stalls(n * 1000 * kSecond);
    }
    coordinator.take_ready();
    EXPECT_LT(coordinator.pending_summary().size(), 10'000u);
  }
  set_log_level(before);
}

class Recorder : public TraceSink {
 public:
  void record(const TraceSpan& span) override {
    if (span.kind != SpanKind::kReady) return;  // that the ranks disagree
    lines.push_back(std::string(span.text) + " " + std::to_string(span.peer) + " " +
                    std::to_string(span.value) + " @" + std::to_string(span.begin));
  }
  [[nodiscard]] bool is_recording() const override { return true; }
  [[nodiscard]] bool wants_details() const override { return wants; }
  bool wants = true;
  std::vector<std::string> lines;
};

TEST(CoordinatorTrace, says_which_ranks_were_ready_when_if_a_timeline_is_on) {
  Coordinator coordinator(world_of(2));
  Recorder recorder;
  coordinator.submit(1, {allreduce("a")}, 5, &recorder);
  TensorRequest adasum = allreduce("a");
  adasum.op = ReduceOp::kAdasum;
  coordinator.submit(0, {adasum}, 7, &recorder);
  EXPECT_THAT(recorder.lines, testing::ElementsAre("a 1 0 @5", "a 0 256 @7"));
  recorder.wants = false;
  coordinator.submit(1, {allreduce("b")}, 8, &recorder);
  EXPECT_EQ(recorder.lines.size(), 2u);
}

TEST(CoordinatorTrace, joins_and_sets_without_rank_0_are_left_out) {
  CoordinatorOptions options = world_of(2);
  options.process_sets = {{1, {1}}};
  Coordinator coordinator(options);
  Recorder recorder;
  TensorRequest foreign = allreduce("f");
  foreign.process_set = 1;
  coordinator.submit(1, {foreign, collective(Collective::kBarrier, "b", {}), join()}, 1, &recorder);
  EXPECT_THAT(recorder.lines, testing::ElementsAre(testing::StartsWith("b 1 ")));
}

}  // namespace
}  // namespace rueda::control::property_test
