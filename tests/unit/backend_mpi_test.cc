#include "rueda/backend/mpi/mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <latch>
#include <optional>
#include <string_view>
#include <thread>

#include "backend_mpi_fake.h"
#include "rueda/backend/mpi/init_watch.h"

namespace rueda::backend::mpi::backend_mpi_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const char* no_variables(const char*) { return nullptr; }

std::shared_ptr<Process> start(FakeMpi& mpi) {
  return Process::start(std::make_unique<FakeLibrary>(mpi), no_variables).value();
}

Group world_of(const FakeMpi& mpi) {
  Group group;
  group.me = mpi.rank;
  for (Rank rank = 0; rank < mpi.size; ++rank) group.members.push_back(rank);
  return group;
}

// A backend over a library that is initialised, and the calls that a test makes.
class World {
 public:
  explicit World(int rank = 0, int size = 2, int64_t chunk_bytes = 1 << 20)
      : mpi{.rank = rank, .size = size}, group(world_of(mpi)), process(start(mpi)) {
    const Team team = process->join(std::nullopt, Deadline::after(20 * kSecond)).value();
    mpi.posted.clear();
    mpi.completes_at_once = false;
    backend.emplace(process, team, MpiOptions{.chunk_bytes = chunk_bytes});
  }

  void start_call(schedule::Spec spec, std::vector<float>& data, std::vector<int64_t> counts = {}) {
    counts_.push_back(std::move(counts));
    Segment segment{.input = data.data(), .output = data.data(), .count = std::ssize(data)};
    segment.counts = counts_.back();
    segments_.push_back({segment});
    spec.counts = counts_.back();
    backend->start(
        Call{.id = ++calls, .group = &group, .spec = std::move(spec), .segments = segments_.back()});
  }
  void allreduce(std::vector<float>& data) {
    start_call({.what = Collective::kAllreduce,
                .count = std::ssize(data),
                .counts = {},
                .scale = {},
                .segment_counts = {}},
               data);
  }
  std::vector<Done> progress() {
    std::vector<Done> done;
    backend->progress(done);
    return done;
  }
  void complete_all() { mpi.open.clear(); }

  FakeMpi mpi;
  Group group;
  std::shared_ptr<Process> process;
  std::optional<MpiBackend> backend;
  CallId calls = 0;

 private:
  std::deque<std::vector<int64_t>> counts_;
  std::deque<std::vector<Segment>> segments_;
};

TEST(Mpi, two_calls_are_under_way_at_once_and_end_in_order) {
  World world;
  std::vector<float> first(10), second(20);
  world.allreduce(first);
  EXPECT_TRUE(world.backend->has_room(1));
  world.allreduce(second);
  EXPECT_FALSE(world.backend->has_room(2));
  EXPECT_THAT(world.progress(), IsEmpty());
  EXPECT_THAT(world.mpi.posted, ElementsAre("allreduce 10", "allreduce 20"));
  EXPECT_TRUE(world.backend->needs_polling());
  EXPECT_FALSE(world.backend->prepare_sleep());
  world.complete_all();
  const std::vector<Done> done = world.progress();
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].id, 1u);
  EXPECT_TRUE(done[1].status.is_ok());
  EXPECT_TRUE(world.backend->is_idle());
  EXPECT_FALSE(world.backend->needs_polling());
}

// MPI matches collectives by their order, so the pieces of two calls must not mix: which come first would
// depend on when a rank looks.
TEST(Mpi, a_call_posts_nothing_before_all_pieces_of_the_earlier_one_are_posted) {
  World world(0, 2, 64);  // 16 elements
  std::vector<float> first(16 * 12), second(3);
  world.allreduce(first);
  world.allreduce(second);
  world.progress();
  EXPECT_EQ(world.mpi.posted.size(), 8u);
  EXPECT_THAT(world.mpi.posted, Each(testing::StrEq("allreduce 16")));
  world.complete_all();
  world.progress();
  EXPECT_EQ(world.mpi.posted.size(), 13u);
  EXPECT_EQ(world.mpi.posted.back(), "allreduce 3");
}

TEST(Mpi, collectives_that_are_too_long_are_cut) {
  World world(1, 2, 64);
  std::vector<float> data(40);
  world.start_call({.what = Collective::kAllgather, .counts = {}, .scale = {}, .segment_counts = {}}, data,
                   {20, 10});
  world.progress();
  EXPECT_THAT(world.mpi.posted, ElementsAre("bcast 16 from 0", "bcast 4 from 0", "bcast 10 from 1"));
  world.complete_all();
  world.progress();
  world.mpi.posted.clear();
  world.start_call(
      {.what = Collective::kReducescatter, .count = 40, .counts = {}, .scale = {}, .segment_counts = {}},
      data, {20, 20});
  world.progress();
  EXPECT_THAT(world.mpi.posted,
              ElementsAre("reduce 16 to 0", "reduce 4 to 0", "reduce 16 to 1", "reduce 4 to 1"));
}

// Open MPI 4.1 does not count an MPI_Ialltoallv in which a rank has nothing to do, and what the rank calls
// next meets other messages. So all members send messages when one of them is idle.
TEST(Mpi, an_alltoall_with_an_idle_member_is_messages) {
  World world(0, 3);
  std::vector<float> data(6);
  schedule::Spec spec{.what = Collective::kAlltoall, .counts = {}, .scale = {}, .segment_counts = {}};
  world.start_call(spec, data, {1, 2, 0, 3, 0, 0, 0, 0, 0});
  world.progress();
  EXPECT_THAT(world.mpi.posted, ElementsAre("send 2 to 1", "recv 3 from 1"));
  world.complete_all();
  world.progress();
  world.mpi.posted.clear();
  world.start_call(spec, data, {1, 1, 1, 1, 1, 1, 1, 1, 1});
  world.progress();
  EXPECT_THAT(world.mpi.posted, ElementsAre("alltoallv"));
}

TEST(Mpi, a_lost_rank_fails_the_calls_and_mpi_is_called_no_more) {
  World world;
  std::vector<float> data(10, 1.0f);
  world.allreduce(data);
  world.progress();
  world.backend->abort({Code::kPeerLost, "rank 1 was lost"});
  data.clear();
  data.shrink_to_fit();  // the buffers of the caller are free
  const int calls = world.mpi.calls;
  world.complete_all();
  const std::vector<Done> done = world.progress();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status.why, "rank 1 was lost");
  EXPECT_TRUE(world.backend->is_idle());
  std::vector<float> later(1);
  world.allreduce(later);
  EXPECT_FALSE(world.progress().front().status.is_ok());
  EXPECT_EQ(world.mpi.calls, calls);
  world.process->finish();
  EXPECT_FALSE(world.mpi.is_finalized) << "MPI_Finalize would wait for the lost rank";
  EXPECT_THAT(world.process->join(std::nullopt, Deadline::after(0)).status().why,
              HasSubstr("start the ranks again"));
}

TEST(Mpi, a_failure_of_mpi_waits_for_the_verdict_on_the_ranks) {
  World world;
  std::vector<float> data(10);
  world.allreduce(data);
  world.progress();
  world.mpi.failure = {Code::kUnavailable, "MPI_Test of Open MPI 9.9 failed: message truncated"};
  const std::vector<Done> done = world.progress();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status.code, Code::kPeerLost);
  EXPECT_THAT(done[0].status.why, HasSubstr("message truncated"));
  EXPECT_FALSE(world.process->usable().is_ok());
}

// A call of the process set {0, 2} of three ranks.
void start_in_pair(World& world, const Group& pair, std::vector<float>& data, const Segment& segment) {
  schedule::Spec spec;
  spec.count = std::ssize(data);
  world.backend->start(
      Call{.id = ++world.calls, .group = &pair, .spec = spec, .segments = std::span(&segment, 1)});
}

TEST(Mpi, a_process_set_gets_a_communicator_of_its_own_while_nobody_else_calls_mpi) {
  World world(0, 3);
  world.mpi.gate = std::make_shared<std::latch>(1);
  const Group pair{.id = 1, .members = {0, 2}, .me = 0};
  std::vector<float> data(5), others(6);
  const Segment segment{.input = data.data(), .output = data.data(), .count = 5};
  start_in_pair(world, pair, data, segment);
  world.allreduce(others);
  world.progress();
  world.progress();
  EXPECT_THAT(world.mpi.posted, IsEmpty()) << "the thread is inside MPI_Comm_create_group";
  world.mpi.gate->count_down();
  while (world.mpi.posted.size() < 2) {
    world.progress();
    std::this_thread::yield();
  }
  EXPECT_THAT(world.mpi.posted, ElementsAre("allreduce 5", "allreduce 6"));
}

TEST(Mpi, a_loss_while_a_communicator_is_made_waits_for_nobody) {
  const auto gate = std::make_shared<std::latch>(1);
  {
    World world(0, 3);
    world.mpi.gate = gate;
    const Group pair{.id = 1, .members = {0, 2}, .me = 0};
    std::vector<float> data(5);
    const Segment segment{.input = data.data(), .output = data.data(), .count = 5};
    start_in_pair(world, pair, data, segment);
    world.progress();
    world.backend->abort({Code::kPeerLost, "rank 2 was lost"});
    const std::vector<Done> done = world.progress();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status.why, "rank 2 was lost");
    EXPECT_FALSE(world.process->usable().is_ok());
    world.backend.reset();
    gate->count_down();  // the thread ends before what the fake refers to
    while (world.process.use_count() > 1) std::this_thread::yield();
  }
}

TEST(Mpi, an_abort_without_calls_leaves_the_library_usable) {
  World world;
  world.backend->abort({Code::kStalled, "a tensor was stalled"});
  EXPECT_TRUE(world.process->usable().is_ok());
}

TEST(Mpi, adasum_device_memory_and_groups_of_one_are_left_to_others) {
  World world;
  schedule::Spec spec;
  EXPECT_TRUE(world.backend->accepts(world.group, spec, {}));
  EXPECT_FALSE(world.backend->accepts(world.group, spec, {.kind = MemoryKind::kDevice, .device = 0}));
  spec.op = ReduceOp::kAdasum;
  EXPECT_FALSE(world.backend->accepts(world.group, spec, {}));
  Group one;
  one.members = {0};
  one.me = 0;
  EXPECT_FALSE(world.backend->accepts(one, schedule::Spec{}, {}));
}

TEST(MpiProcess, too_low_a_thread_level_is_refused_in_one_sentence) {
  FakeMpi mpi{.granted = ThreadLevel::kFunneled};
  const auto refused = Process::start(std::make_unique<FakeLibrary>(mpi), no_variables);
  EXPECT_EQ(refused.status().code, Code::kUnsupported);
  EXPECT_THAT(refused.status().why, HasSubstr("offers only MPI_THREAD_FUNNELED"));
  mpi.granted = ThreadLevel::kSingle;
  EXPECT_THAT(Process::start(std::make_unique<FakeLibrary>(mpi), no_variables).status().why,
              HasSubstr("the program has initialised Open MPI 9.9"));
  mpi.granted = ThreadLevel::kSerialized;
  EXPECT_TRUE(Process::start(std::make_unique<FakeLibrary>(mpi), no_variables).is_ok());
}

TEST(MpiProcess, is_finalised_only_by_whoever_initialised_it) {
  FakeMpi ours, theirs{.is_initialized = true};
  start(ours)->finish();
  start(theirs)->finish();
  EXPECT_TRUE(ours.is_finalized);
  EXPECT_FALSE(theirs.is_finalized);
}

TEST(MpiProcess, ranks_that_do_not_come_are_waited_for_until_the_deadline) {
  FakeMpi mpi;
  const std::shared_ptr<Process> process = start(mpi);
  mpi.completes_at_once = false;
  const auto joined = process->join(std::nullopt, Deadline::after(0));
  EXPECT_EQ(joined.status().code, Code::kTimeout);
  EXPECT_FALSE(process->usable().is_ok()) << "the duplicate is still being made";
}

TEST(MpiProcess, inits_with_the_same_ranks_share_a_team) {
  FakeMpi mpi;
  const std::shared_ptr<Process> process = start(mpi);
  const Team first = process->join(std::nullopt, Deadline::after(20 * kSecond)).value();
  const Team again = process->join(Handle{1}, Deadline::after(20 * kSecond)).value();
  const Team other = process->join(Handle{2}, Deadline::after(20 * kSecond)).value();
  EXPECT_EQ(first.comm.handle, again.comm.handle);
  EXPECT_EQ(first.job, again.job);
  EXPECT_NE(first.comm.handle, other.comm.handle);
  EXPECT_NE(first.job, other.job);
  EXPECT_EQ(process->join(Handle{1}, Deadline::after(20 * kSecond)).value().job, first.job)
      << "another team in between must not matter, because only its members know of it";
}

TEST(MpiInitWatch, calls_once_if_init_is_late_and_never_if_it_came_back) {
  std::latch is_late(1);
  {
    const InitWatch watch(Deadline::after(0), [&] { is_late.count_down(); });
    is_late.wait();
  }
  bool was_called = false;
  {
    const InitWatch watch(Deadline::after(kLongestTime / 2), [&] { was_called = true; });
  }
  EXPECT_FALSE(was_called);
}

TEST(MpiInitWatch, a_late_init_ends_the_process_with_a_sentence) {
  EXPECT_EXIT(end_late_init("Open MPI 9.9"), testing::ExitedWithCode(1),
              "MPI_Init of Open MPI 9.9 has not returned within RUEDA_START_TIMEOUT.*"
              "RUEDA_CPU_OPERATIONS=mpi on all ranks");
}

TEST(MpiProcess, another_mpi_than_that_of_mpirun_is_refused_before_it_can_end_the_process) {
  FakeMpi mpi;
  const auto get_env = [](const char* name) {
    return std::string_view(name) == "OMPI_COMM_WORLD_SIZE" ? "4" : nullptr;
  };
  const auto refused = Process::start(std::make_unique<FakeLibrary>(mpi, "MPICH 4.0.2"), get_env);
  EXPECT_THAT(refused.status().why, HasSubstr("mpirun of Open MPI started this process, but MPICH 4.0.2"));
  EXPECT_FALSE(mpi.is_initialized);
}

}  // namespace
}  // namespace rueda::backend::mpi::backend_mpi_test
