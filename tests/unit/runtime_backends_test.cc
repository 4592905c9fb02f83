// What a session says about the time of its allreduces, and that its backends connect to the ranks they need.
#include "rueda/runtime/backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "rueda/transport/sim/sim.h"

namespace rueda::runtime::backends_test {
namespace {

using testing::Each;
using testing::HasSubstr;

Session session_of(std::vector<std::string> host_keys) {
  Session session;
  session.all = std::make_unique<std::vector<PeerInfo>>(host_keys.size());
  for (size_t rank = 0; rank < host_keys.size(); ++rank) {
    (*session.all)[rank].host_key = host_keys[rank];
    (*session.all)[rank].settings.chunk_bytes = 256 << 10;
  }
  session.measured.local = {.latency_us = 1, .gbps = 8};
  session.measured.remote = {.latency_us = 40, .gbps = 0.1};
  return session;
}

TEST(Settings, that_mpi_cannot_keep_are_refused_by_name) {
  Config config;
  config.cpu_operations = "mpi";
  EXPECT_TRUE(check_algorithm_settings(config).is_ok());
  config.determinism = "bitwise";
  EXPECT_THAT(check_algorithm_settings(config).why, HasSubstr("RUEDA_DETERMINISM=bitwise cannot be kept"));
  config.algorithm = "ring";
  EXPECT_THAT(check_algorithm_settings(config).why, HasSubstr("RUEDA_ALGORITHM=ring cannot be kept"));
}

TEST(Predictions, name_every_candidate_between_hosts_with_its_time) {
  const auto predictions = predict_allreduces(session_of({"a", "a", "b", "b"}));
  ASSERT_EQ(predictions.size(), 4u);
  EXPECT_EQ(predictions[2].bytes, 1 << 20);
  EXPECT_THAT(predictions[2].text,
              testing::AllOf(HasSubstr("direct: "), HasSubstr("; two_level: "), HasSubstr(" us")));
}

TEST(Predictions, say_that_an_algorithm_is_forced) {
  Session session = session_of({"a", "b"});
  session.all->front().settings.algorithm = "ring";
  EXPECT_THAT(predict_allreduces(session)[0].text, HasSubstr("us, forced by name"));
}

TEST(Predictions, name_the_ways_of_shared_memory_on_one_host) {
  Session session = session_of({"a", "a"});
  session.reduces_in_shared_memory = true;
  const auto predictions = predict_allreduces(session);
  EXPECT_THAT(predictions[0].text, HasSubstr("in shared memory, one_shot: "));
  EXPECT_THAT(predictions[3].text, HasSubstr("in shared memory, staged: "));
  EXPECT_THAT(predictions[3].text, HasSubstr("us where all tensors lie in shared buffers"));
}

TEST(PlanBuckets, grow_with_what_the_network_carries_during_its_latency) {
  Session session = session_of({"a", "b", "c", "d"});
  session.measured.remote = {.latency_us = 40, .gbps = 0.12};  // 1 Gbit/s
  EXPECT_EQ(plan_bucket_bytes(session), 1 << 20);
  session.measured.remote = {.latency_us = 40, .gbps = 12};  // 100 Gbit/s
  const int64_t fast = plan_bucket_bytes(session);
  EXPECT_GE(fast, 4 << 20);
  session.measured.remote = {.latency_us = 400, .gbps = 12};
  EXPECT_GT(plan_bucket_bytes(session), fast);
  session.measured.remote = {.latency_us = 40'000, .gbps = 12};
  EXPECT_EQ(plan_bucket_bytes(session), 16 << 20);
}

TEST(PlanBuckets, of_one_host_do_not_depend_on_a_network) {
  Session session = session_of({"a", "a"});
  session.measured.remote = {.latency_us = 40'000, .gbps = 12};
  EXPECT_EQ(plan_bucket_bytes(session), 1 << 20);
}

TEST(Predictions, are_none_for_a_rank_alone) { EXPECT_TRUE(predict_allreduces(session_of({"a"})).empty()); }

// Sessions of all ranks in one thread, each on a host of its own, over the simulator.
class Sessions {
 public:
  explicit Sessions(Rank size) : network_({.size = size, .seed = 11}) {
    for (Rank rank = 0; rank < size; ++rank) {
      Session& session = sessions_.emplace_back();
      session.me = rank;
      session.all = std::make_unique<std::vector<PeerInfo>>(static_cast<size_t>(size));
      for (Rank peer = 0; peer < size; ++peer) {
        PeerInfo& info = (*session.all)[static_cast<size_t>(peer)];
        info.host = info.host_key = std::string(1, static_cast<char>('a' + peer));
        info.addresses["sim"] = "sim:" + std::to_string(peer);
        info.settings.chunk_bytes = 256 << 10;
      }
      std::vector<OpenTransport> transports;
      transports.push_back({TransportScope::kNetwork, network_.make(rank)});
      session.links = std::make_unique<Links>(std::move(transports), rank, *session.all);
      RUEDA_CHECK(attach_backends(session, nullptr).is_ok(), "there is no setting to refuse");
    }
  }

  // An allreduce of these ranks in place.
  void start(const std::vector<Rank>& members, std::vector<std::vector<float>>& data) {
    for (size_t i = 0; i < members.size(); ++i) {
      const Group& group =
          groups_.emplace_back(Group{.id = 1, .epoch = 1, .members = members, .me = static_cast<Rank>(i)});
      const auto count = static_cast<int64_t>(data[i].size());
      const backend::Segment& segment = segments_.emplace_back(
          backend::Segment{.input = data[i].data(), .output = data[i].data(), .count = count});
      const schedule::Spec spec{.count = count, .counts = {}, .scale = {}, .segment_counts = {}};
      backend_of(members[i])
          .start({.id = next_, .order = next_, .group = &group, .spec = spec, .segments = {&segment, 1}});
    }
    ++next_;
  }
  // Until `calls` calls have ended on all ranks together.
  bool run(size_t calls) {
    std::vector<backend::Done> done;
    for (int step = 0; step < 10'000 && done.size() < calls; ++step) {
      for (Session& session : sessions_) {
        session.links->progress(session.on_data);
        session.backends->all().front()->progress(done);
      }
    }
    for (const backend::Done& each : done) EXPECT_TRUE(each.status.is_ok()) << each.status.why;
    return done.size() == calls;
  }
  Links& links(Rank rank) { return *sessions_[static_cast<size_t>(rank)].links; }

 private:
  backend::Backend& backend_of(Rank rank) {
    return *sessions_[static_cast<size_t>(rank)].backends->all().front();
  }

  transport::SimNetwork network_;
  std::deque<Session> sessions_;
  std::deque<Group> groups_;
  std::deque<backend::Segment> segments_;
  backend::CallId next_ = 0;
};

TEST(AttachedBackends, bring_up_the_channels_that_calls_need_and_no_others) {
  Sessions sessions(4);
  std::vector<std::vector<float>> data(2, std::vector<float>(5000, 1.5F)), more = data;
  sessions.start({1, 3}, data);
  sessions.start({1, 3}, more);  // on the other data channel
  ASSERT_TRUE(sessions.run(4));
  for (const auto& each : data) EXPECT_THAT(each, Each(3.0F));
  for (const auto& each : more) EXPECT_THAT(each, Each(3.0F));
  EXPECT_EQ(sessions.links(1).transport_name(3), "sim");
  EXPECT_EQ(sessions.links(1).transport_name(0), "none");
  EXPECT_EQ(sessions.links(0).transport_name(1), "none");
  EXPECT_EQ(sessions.links(1).describe_link(3), "rank 3 (host d, pid 0) over sim at sim:3");

  std::vector<std::vector<float>> all(4, std::vector<float>(700, 2.0F));
  sessions.start({0, 1, 2, 3}, all);
  ASSERT_TRUE(sessions.run(4));
  for (const auto& each : all) EXPECT_THAT(each, Each(8.0F));
}

}  // namespace
}  // namespace rueda::runtime::backends_test
