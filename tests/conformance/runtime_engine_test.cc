// Whole engines, one per thread, connected by real transports through a file store: what every combination of
// transport and world size must do. Also what ThreadSanitizer and AddressSanitizer look at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <thread>
#include <tuple>

#include "engine_job.h"
#include "ucx_here.h"

namespace rueda::runtime::engine_test {
namespace {

using testing::HasSubstr;

class EngineConformance : public testing::TestWithParam<std::tuple<std::string, Rank>> {
 protected:
  void SetUp() override {
    using rueda::ucx_test::UcxOver;
    const std::string why = rueda::ucx_test::why_no_ucx(std::get<0>(GetParam()), UcxOver::kSharedMemory);
    if (!why.empty()) GTEST_SKIP() << why;
  }
  [[nodiscard]] Rank size() const { return std::get<1>(GetParam()); }
  Job job_{std::get<1>(GetParam()), std::get<0>(GetParam())};
};

TEST_P(EngineConformance, allreduce_sums_in_rank_order_at_every_size) {
  job_.run([&](Engine& engine, Rank rank) {
    for (const int64_t count : {0, 1, 7, 1000, 300'000}) {
      std::vector<float> data(static_cast<size_t>(count));
      for (size_t i = 0; i < data.size(); ++i)
        data[i] = 0.1f * static_cast<float>(rank + 1) + static_cast<float>(i % 13);
      Tensor tensor = make_tensor(Collective::kAllreduce, "x" + std::to_string(count), {count}, data.data());
      ASSERT_TRUE(run_one(engine, std::move(tensor)).is_ok());
      for (size_t i = 0; i < data.size(); ++i) {
        float expected = 0.1f + static_cast<float>(i % 13);
        for (Rank r = 1; r < size(); ++r)
          expected += 0.1f * static_cast<float>(r + 1) + static_cast<float>(i % 13);
        ASSERT_EQ(data[i], expected) << "element " << i << " of " << count;
      }
    }
  });
}

TEST_P(EngineConformance, many_tensors_in_another_order_on_each_rank_complete_and_fuse) {
  job_.run([&](Engine& engine, Rank rank) {
    constexpr int kTensors = 60;
    std::vector<std::vector<float>> data(kTensors, std::vector<float>(33, static_cast<float>(rank)));
    std::vector<int64_t> handles;
    for (int i = 0; i < kTensors; ++i) {
      const int at = (i * 7 + rank * 13) % kTensors;
      handles.push_back(must_submit(engine, make_tensor(Collective::kAllreduce, "t" + std::to_string(at),
                                                        {33}, data[static_cast<size_t>(at)].data())));
    }
    for (const int64_t handle : handles) ASSERT_TRUE(wait(engine, handle).is_ok());
    const auto expected = static_cast<float>(size() * (size() - 1) / 2);
    for (const auto& tensor : data) EXPECT_THAT(tensor, testing::Each(expected));
    EXPECT_LE(engine.counters().batches.load(), kTensors);
  });
}

TEST_P(EngineConformance, gathers_and_scatters_uneven_rows) {
  job_.run([&](Engine& engine, Rank rank) {
    const Rank n = size();
    std::vector<float> mine(static_cast<size_t>(rank + 1) * 2, static_cast<float>(rank));
    const int64_t gather =
        must_submit(engine, make_tensor(Collective::kAllgather, "g", {rank + 1, 2}, mine.data()));
    ASSERT_TRUE(wait(engine, gather).is_ok());
    std::vector<float> expected;
    for (Rank r = 0; r < n; ++r)
      expected.insert(expected.end(), static_cast<size_t>(r + 1) * 2, static_cast<float>(r));
    EXPECT_EQ(result_of(engine, gather), expected);

    std::vector<float> rows(static_cast<size_t>(n) + 1, 1.0f);
    const int64_t scatter =
        must_submit(engine, make_tensor(Collective::kReducescatter, "s", {n + 1}, rows.data()));
    ASSERT_TRUE(wait(engine, scatter).is_ok());
    EXPECT_EQ(result_of(engine, scatter), std::vector<float>(rank == 0 ? 2 : 1, static_cast<float>(n)));

    std::vector<float> letters(static_cast<size_t>(n), static_cast<float>(rank));
    const int64_t exchange =
        must_submit(engine, make_tensor(Collective::kAlltoall, "a", {n}, letters.data()));
    ASSERT_TRUE(wait(engine, exchange).is_ok());
    std::vector<float> from_all(static_cast<size_t>(n));
    std::iota(from_all.begin(), from_all.end(), 0.0f);
    EXPECT_EQ(result_of(engine, exchange), from_all);
  });
}

TEST_P(EngineConformance, broadcast_hands_out_the_roots_values) {
  job_.run([&](Engine& engine, Rank rank) {
    std::vector<float> data(5000, static_cast<float>(rank));
    Tensor tensor = make_tensor(Collective::kBroadcast, "b", {5000}, data.data());
    tensor.request.root = size() - 1;
    ASSERT_TRUE(run_one(engine, std::move(tensor)).is_ok());
    EXPECT_THAT(data, testing::Each(static_cast<float>(size() - 1)));
  });
}

TEST_P(EngineConformance, disagreement_fails_everywhere_and_the_engine_stays_usable) {
  if (size() == 1) GTEST_SKIP() << "one rank cannot disagree";
  job_.run([&](Engine& engine, Rank rank) {
    std::vector<float> data(10, 1.0f);
    const Status status =
        run_one(engine, make_tensor(Collective::kAllreduce, "x", {rank == 0 ? 10 : 5}, data.data()));
    EXPECT_EQ(status.code, Code::kMismatch);
    EXPECT_THAT(status.why, HasSubstr("Mismatched ALLREDUCE tensor shapes"));
    EXPECT_TRUE(run_one(engine, make_tensor(Collective::kAllreduce, "x", {10}, data.data())).is_ok());
    EXPECT_THAT(data, testing::Each(static_cast<float>(size())));
  });
}

TEST_P(EngineConformance, a_rank_that_joined_contributes_zeros_and_all_learn_who_was_last) {
  job_.run([&](Engine& engine, Rank rank) {
    const int steps = rank == size() - 1 ? 3 : 1;
    for (int i = 0; i < steps; ++i) {
      std::vector<float> data(100, 1.0f);
      ASSERT_TRUE(
          run_one(engine, make_tensor(Collective::kAllreduce, "s" + std::to_string(i), {100}, data.data()))
              .is_ok());
      EXPECT_THAT(data, testing::Each(i == 0 ? static_cast<float>(size()) : 1.0f));
    }
    Tensor join = make_tensor(Collective::kJoin, "join.noname", {}, nullptr);
    join.request.tag = rank * 10;
    const int64_t handle = must_submit(engine, std::move(join));
    ASSERT_TRUE(wait(engine, handle).is_ok());
    EXPECT_EQ(engine.operations().find(handle)->last_joined, size() - 1);
    EXPECT_EQ(engine.operations().find(handle)->tag, (size() - 1) * 10);
  });
}

TEST_P(EngineConformance, dynamic_process_sets_come_and_go) {
  if (size() < 3) GTEST_SKIP() << "needs a proper subset of several ranks";
  job_.run(
      [&](Engine& engine, Rank rank) {
        const Result<int32_t> id = engine.add_process_set({0, 2});
        ASSERT_TRUE(id.is_ok()) << id.status().why;
        std::vector<float> data(10, static_cast<float>(rank + 1));
        Tensor tensor = make_tensor(Collective::kAllreduce, "x", {10}, data.data());
        tensor.request.process_set = id.value();
        if (rank == 0 || rank == 2) {
          ASSERT_TRUE(run_one(engine, std::move(tensor)).is_ok());
          EXPECT_THAT(data, testing::Each(4.0f));
        } else {
          std::vector<Tensor> tensors;
          tensors.push_back(std::move(tensor));
          EXPECT_THAT(engine.submissions().submit(std::move(tensors)).status().why,
                      HasSubstr("is not a member"));
        }
        EXPECT_EQ(engine.add_process_set({0, 2}).status().code, Code::kInvalidArgument);
        EXPECT_TRUE(engine.remove_process_set(id.value()).is_ok());
        EXPECT_EQ(engine.groups().find(id.value()), nullptr);
      },
      {{"RUEDA_DYNAMIC_PROCESS_SETS", "1"}});
}

TEST_P(EngineConformance, what_was_prepared_for_a_process_set_is_not_run_by_another_one_with_its_id) {
  if (size() < 3) GTEST_SKIP() << "needs a proper subset of several ranks";
  job_.run(
      [&](Engine& engine, Rank rank) {
        const int32_t id = engine.add_process_set({0, 1}).value();
        std::vector<float> data(10, 1.0f);
        PreparedStart start{.number = 0, .input = data.data(), .output = data.data()};
        if (rank < 2) {
          Tensor tensor = make_tensor(Collective::kAllreduce, "x", {10}, nullptr);
          tensor.request.process_set = id;
          start.number = engine.submissions().prepare(std::move(tensor)).value();
          const int64_t handle = engine.submissions().start(start).value();
          engine.submissions().wake();
          EXPECT_TRUE(engine.wait(handle, Deadline::after(20 * kSecond)).is_ok());
          engine.operations().release(handle);
        }
        ASSERT_TRUE(engine.remove_process_set(id).is_ok());
        ASSERT_EQ(engine.add_process_set({0, 2}).value(), id);
        if (rank < 2) {
          EXPECT_THAT(engine.submissions().start(start).status().why,
                      HasSubstr("its process set was removed"));
        }
        EXPECT_THAT(data, testing::Each(rank < 2 ? 2.0f : 1.0f));
        EXPECT_TRUE(run_one(engine, make_tensor(Collective::kBarrier, "end", {}, nullptr)).is_ok());
      },
      {{"RUEDA_DYNAMIC_PROCESS_SETS", "1"}});
}

TEST_P(EngineConformance, one_rank_that_leaves_ends_the_pending_operations_of_the_others) {
  if (size() == 1) GTEST_SKIP() << "nobody else is there";
  job_.run([&](Engine& engine, Rank rank) {
    if (rank == 0) return;  // the engine's destructor shuts down
    std::vector<float> data(10, 1.0f);
    const Status status = run_one(engine, make_tensor(Collective::kAllreduce, "never", {10}, data.data()));
    EXPECT_EQ(status.code, Code::kShutDown);
    EXPECT_THAT(status.why, testing::StartsWith("Horovod has been shut down."));
  });
}

TEST_P(EngineConformance, everything_ordered_before_a_departure_completes) {
  job_.run([&](Engine& engine, Rank) {
    std::vector<float> data(200'000, 1.0f);
    EXPECT_TRUE(run_one(engine, make_tensor(Collective::kAllreduce, "last", {200'000}, data.data())).is_ok());
    EXPECT_THAT(data.back(), static_cast<float>(size()));
  });
}

TEST_P(EngineConformance, a_timeline_shows_every_rank) {
  const std::string path = (job_.dir() / "timeline.json").string();
  job_.run(
      [&](Engine& engine, Rank) {
        std::vector<float> data(10, 1.0f);
        EXPECT_TRUE(run_one(engine, make_tensor(Collective::kAllreduce, "grad", {10}, data.data())).is_ok());
      },
      {{"RUEDA_TIMELINE", path}});
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(text, HasSubstr("NEGOTIATE_ALLREDUCE"));
  for (Rank rank = 1; rank < size(); ++rank) {  // rank 0's rows carry no tid
    EXPECT_THAT(text, HasSubstr("\"tid\": " + std::to_string(rank)));
  }
}

// Who takes part without a tensor, or not at all, leaves no bar open under which all later ones would lie.
TEST_P(EngineConformance, timeline_bars_end_on_joined_ranks_and_are_absent_outside_the_set) {
  if (size() < 3) GTEST_SKIP() << "needs a rank outside of a set of two";
  const std::string path = (job_.dir() / "timeline.json").string();
  const Rank joiner = size() - 1;
  job_.run(
      [&](Engine& engine, Rank rank) {
        std::vector<float> data(10, 1.0f);
        const auto sum = [&](const std::string& name, int32_t set) {
          Tensor tensor = make_tensor(Collective::kAllreduce, name, {10}, data.data());
          tensor.request.process_set = set;
          ASSERT_TRUE(run_one(engine, std::move(tensor)).is_ok());
        };
        const Result<int32_t> set = engine.add_process_set({0, 1});
        ASSERT_TRUE(set.is_ok());
        if (rank < 2) sum("inside", set.value());
        if (rank != joiner) sum("late", 0);
        ASSERT_TRUE(run_one(engine, make_tensor(Collective::kJoin, "join.noname", {}, nullptr)).is_ok());
        sum("last", 0);
      },
      {{"RUEDA_TIMELINE", path}});
  std::ifstream file(path);
  std::map<int, std::string> names;
  std::string inside, late;  // begins and ends on the rank that joined
  bool has_last = false;
  for (const nlohmann::json& event : nlohmann::json::parse(file)) {
    const std::string phase = event.value("ph", "");
    const int pid = event.value("pid", 0);
    if (phase == "M" && event["name"] == "process_name") names[pid] = event["args"].value("name", "");
    if (event.value("tid", 0) != joiner || (phase != "B" && phase != "E")) continue;
    has_last |= names[pid] == "last";
    if (names[pid] == "inside") inside += phase;
    if (names[pid] == "late" && !has_last) late += phase;
  }
  EXPECT_EQ(inside, "");
  // The operation, QUEUE, copies where the transport needs them, the transfer: all ended before "last" began.
  EXPECT_THAT(late, testing::AnyOf("BBEBEE", "BBEBEBEBEE"));
  EXPECT_TRUE(has_last);
}

INSTANTIATE_TEST_SUITE_P(all, EngineConformance,
                         testing::Combine(testing::Values("shm,tcp", "tcp"), testing::Values(1, 2, 3, 4)),
                         [](const auto& info) {
                           return (std::get<0>(info.param) == "tcp" ? std::string("tcp")
                                                                    : std::string("shm")) +
                                  std::to_string(std::get<1>(info.param));
                         });

INSTANTIATE_TEST_SUITE_P(over_ucx, EngineConformance,
                         testing::Combine(testing::Values("ucx"), testing::Values(2, 3)),
                         [](const auto& info) { return "ucx" + std::to_string(std::get<1>(info.param)); });

TEST(Init, names_the_rank_that_did_not_come) {
  const Job job(3, "shm,tcp");
  std::vector<std::thread> threads;
  for (const Rank rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      const Result<Session> session = job.start(rank, {{"RUEDA_START_TIMEOUT", "1"}});
      ASSERT_FALSE(session.is_ok());
      EXPECT_THAT(session.status().why, HasSubstr("rank 1 of 3 did not call init"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Init, fails_everywhere_with_the_cause_of_the_rank_that_could_not) {
  const Job job(2, "shm,tcp");
  std::thread bad([&] {
    EXPECT_THAT(job.start(1, {{"RUEDA_FUSION_THRESHOLD", "lots"}}).status().why,
                HasSubstr("RUEDA_FUSION_THRESHOLD"));
  });
  const Status status = job.start(0).status();
  bad.join();
  EXPECT_THAT(status.why, HasSubstr("another rank could not initialize: rank 1"));
  EXPECT_THAT(status.why, HasSubstr("RUEDA_FUSION_THRESHOLD"));
}

TEST(Init, ranks_with_different_process_sets_all_fail) {
  const Job job(2, "shm,tcp");
  std::vector<std::thread> threads;
  for (const Rank rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      const Status status = job.start(rank, {}, {.process_sets = {{rank}}}).status();
      EXPECT_THAT(status.why, HasSubstr("mismatching values on different ranks"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Init, registers_the_sets_of_communicators_of_all_ranks_on_all_ranks) {
  const Job job(4, "shm,tcp");
  std::vector<std::optional<Result<Session>>> sessions(4);
  std::vector<std::thread> threads;
  for (const Rank rank : {0, 1, 2, 3}) {
    threads.emplace_back([&, rank] {
      const Rank first = rank % 2;
      sessions[static_cast<size_t>(rank)].emplace(
          job.start(rank, {}, {.process_sets = {{first, first + 2}}, .own_sets = {0}}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& session : sessions) {
    ASSERT_TRUE(session->is_ok()) << session->status().why;
    EXPECT_EQ(session->value().process_sets, (std::vector<std::vector<Rank>>{{0, 2}, {1, 3}}));
  }
}

}  // namespace
}  // namespace rueda::runtime::engine_test
