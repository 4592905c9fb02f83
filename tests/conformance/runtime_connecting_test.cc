// Whole engines with data channels that the backend does not see at first: operations wait, and a peer that
// never comes ends the epoch with its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine_job.h"
#include "rueda/backend/native/native.h"

namespace rueda::runtime::connecting_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr Rank kRanks = 2;

// What rank 0 sees of its data channels.
struct View {
  std::atomic<bool> is_up{false};
  std::atomic<int> looks{0};  // in vain
};

// Runs body on two ranks, of which rank 0 has the data channel to rank 1 only once the view says so.
void run_with_view(View& view, Nanos patience, const Body& body) {
  const Job job(kRanks, "tcp");
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Result<Session> session = job.start(rank);
      ASSERT_TRUE(session.is_ok()) << session.status().to_string();
      const Links* links = session.value().links.get();
      backend::Mesh mesh{
          .endpoint = [&view, rank, links](Rank peer, size_t channel) -> transport::Endpoint* {
            return rank != 0 || view.is_up ? links->data(peer, channel) : nullptr;
          },
          .connect =
              [&view](Rank) {
                ++view.looks;
                return Status::ok();
              },
          .describe = [links](Rank peer) { return links->describe_link(peer); },
          .topology = [](const Group& group) { return schedule::Topology::single_host(group.size()); },
          .patience = patience};
      auto native = std::make_unique<backend::NativeBackend>(std::move(mesh));
      session.value().on_data = [backend = native.get()](const transport::Completion& done) {
        backend->on_completion(done);
      };
      std::vector<std::unique_ptr<backend::Backend>> backends;
      backends.push_back(std::move(native));
      session.value().backends = std::make_unique<backend::BackendTable>(std::move(backends));
      const std::shared_ptr<Engine> engine = Engine::start(std::move(session).value()).value();
      body(*engine, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Tensor allreduce(const std::string& name, std::vector<float>& data) {
  return make_tensor(Collective::kAllreduce, name, {static_cast<int64_t>(data.size())}, data.data());
}

TEST(Connecting, an_operation_waits_for_its_channel_while_the_engine_goes_on) {
  View view;
  run_with_view(view, 60 * kSecond, [&view](Engine& engine, Rank rank) {
    std::vector<float> first(100, 1.0F), second(100, 2.0F);
    const int64_t waiting = must_submit(engine, allreduce("first", first));
    if (rank == 0) {
      while (view.looks == 0) std::this_thread::yield();  // its call has begun
      EXPECT_EQ(engine.operations().poll(waiting), 0);
      view.is_up = true;
    }
    const int64_t next = must_submit(engine, allreduce("second", second));  // wakes the engine, which looks
    ASSERT_TRUE(wait(engine, waiting).is_ok());
    ASSERT_TRUE(wait(engine, next).is_ok());
    EXPECT_THAT(first, Each(2.0F));
    EXPECT_THAT(second, Each(4.0F));
  });
}

TEST(Connecting, to_a_peer_that_never_comes_ends_the_epoch_with_its_name_on_all_ranks) {
  View view;
  run_with_view(view, kSecond, [](Engine& engine, Rank) {
    std::vector<float> data(100, 1.0F);
    const Status status = wait(engine, must_submit(engine, allreduce("grad", data)));
    EXPECT_EQ(status.code, Code::kPeerLost);
    EXPECT_THAT(status.why,
                AllOf(HasSubstr("rank 0 (host a"), HasSubstr("failed: no connection to rank 1 (host a"),
                      HasSubstr("over tcp at 127.0.0.1:"), HasSubstr("came up within 1 s")));
  });
}

}  // namespace
}  // namespace rueda::runtime::connecting_test
