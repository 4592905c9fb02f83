// Which transport each pair uses, what a failed connection says, and what is sent on the control channels.
#include "rueda/runtime/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "rueda/base/limits.h"
#include "rueda/runtime/calibrate.h"
#include "runtime_links_world.h"

namespace rueda::runtime::links_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using transport::Completion;
using transport::Loss;
using transport::Ticket;

Status go_on() { return Status::ok(); }

// Records what is asked of it; a test says what has come of it.
class FakeTransport final : public transport::Transport {
 public:
  class Channel final : public transport::Endpoint {
   public:
    void send(Ticket ticket, std::span<const std::byte> bytes) override {
      sent.push_back(ticket);
      spans.push_back(bytes);
    }
    void recv(Ticket, std::span<std::byte> buffer) override { posted = buffer; }
    void recv_into(Ticket, size_t, size_t, transport::Consumer&) override {}
    size_t withdraw(size_t) override { return 0; }
    [[nodiscard]] Nanos round_trip() const override { return trip; }
    Nanos trip = 0;
    std::vector<Ticket> sent;
    std::vector<std::span<const std::byte>> spans;
    std::span<std::byte> posted;  // the last buffer
  };

  explicit FakeTransport(std::string name) : name_(std::move(name)) {}
  ~FakeTransport() override { ends(channels); }
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string address() const override { return name_ + ":0"; }
  [[nodiscard]] bool reaches(std::string_view address) const override {
    return address.starts_with(name_) && !unreachable.contains(address);
  }
  Status connect(Rank peer, std::string_view address, uint16_t channel) override {
    if (!refusal.is_ok()) return refusal;
    asked.insert({std::string(address), channel});
    if (comes_up) channels[{peer, channel}];
    return Status::ok();
  }
  transport::Endpoint* endpoint(Rank peer, uint16_t channel) override {
    const auto found = channels.find({peer, channel});
    return found == channels.end() ? nullptr : &found->second;
  }
  bool progress(std::vector<Completion>& completions) override {
    completions.insert(completions.end(), done.begin(), done.end());
    return !std::exchange(done, {}).empty();
  }
  std::vector<Loss> take_losses() override { return std::exchange(losses, {}); }
  bool prepare_sleep() override { return true; }
  void wake_fds(std::vector<int>&) const override {}
  [[nodiscard]] std::string trouble_with(Rank peer) const override {
    const auto found = troubles.find(peer);
    return found == troubles.end() ? "" : found->second;
  }
  void abort(const Status&) override {}
  [[nodiscard]] bool is_silent() const override { return silent; }

  std::set<std::string, std::less<>> unreachable;
  std::set<std::pair<std::string, uint16_t>> asked;  // address and channel
  std::map<std::pair<Rank, uint16_t>, Channel> channels;
  std::map<Rank, std::string> troubles;
  std::vector<Completion> done;
  std::vector<Loss> losses;
  Status refusal;
  bool comes_up = true, silent = false;
  std::function<void(std::map<std::pair<Rank, uint16_t>, Channel>&)> ends = [](auto&) {};

 private:
  std::string name_;
};

// The links of one rank over two transports: one within its host, one to everywhere.
struct TwoWays {
  explicit TwoWays(std::vector<PeerInfo> ranks, Rank me = 0)
      : all(std::move(ranks)), links(open(), me, all) {}

  std::vector<OpenTransport> open() {
    std::vector<OpenTransport> transports;
    for (const auto& [name, scope] :
         {std::pair{"near", TransportScope::kHost}, std::pair{"far", TransportScope::kNetwork}}) {
      auto made = std::make_unique<FakeTransport>(name);
      (scope == TransportScope::kHost ? near : far) = made.get();
      transports.push_back({scope, std::move(made)});
    }
    return transports;
  }
  Status connect(Nanos patience = 10 * kSecond) {
    return links.connect_all(Deadline::after(patience), go_on);
  }

  FakeTransport* near = nullptr;
  FakeTransport* far = nullptr;
  std::vector<PeerInfo> all;
  Links links;
};

TEST(LinksChoice, is_the_first_transport_within_a_host_and_another_between_hosts) {
  TwoWays two(world("aab", {"near", "far"}));
  ASSERT_TRUE(two.connect().is_ok());
  EXPECT_EQ(two.links.transport_name(0), "self");
  EXPECT_EQ(two.links.transport_name(1), "near");
  EXPECT_EQ(two.links.transport_name(2), "far") << "though it can be reached: a launcher said two hosts";
}

TEST(LinksChoice, passes_over_what_the_peer_does_not_have_or_is_not_reached_by) {
  std::vector<PeerInfo> all = world("aaa", {"near", "far"});
  all[1].addresses.erase("near");
  TwoWays two(std::move(all));
  two.near->unreachable = {"near:2"};
  ASSERT_TRUE(two.connect().is_ok());
  EXPECT_EQ(two.links.transport_name(1), "far");
  EXPECT_EQ(two.links.transport_name(2), "far");
  EXPECT_THAT(two.near->asked, IsEmpty());
}

TEST(LinksChoice, that_leaves_nothing_for_any_pair_fails_init_though_nobody_connects_that_pair_yet) {
  std::vector<PeerInfo> all = world("abc", {"far"});
  all[1].addresses.clear();
  TwoWays two(std::move(all), 2);
  EXPECT_THAT(two.connect().why, HasSubstr("no transport reaches rank 1 (host b, pid 101); allow tcp"));
}

TEST(LinksChoice, that_leaves_nothing_names_the_peer_and_the_setting) {
  TwoWays two(world("ab", {"near"}));
  const Status status = two.connect();
  EXPECT_EQ(status.code, Code::kUnavailable);
  EXPECT_EQ(status.why,
            "no transport reaches rank 1 (host b, pid 101); allow tcp with RUEDA_TRANSPORTS=shm,tcp.");
}

TEST(LinksChoice, of_silent_transports_only_makes_silent_links) {
  TwoWays two(world("aab", {"near", "far"})), one_host(world("aa", {"near", "far"}));
  two.near->silent = one_host.near->silent = true;
  ASSERT_TRUE(two.connect().is_ok());
  ASSERT_TRUE(one_host.connect().is_ok());
  EXPECT_FALSE(two.links.are_silent());
  EXPECT_TRUE(one_host.links.are_silent());
}

TEST(LinksStar, a_rank_has_a_control_channel_to_the_coordinator_only) {
  TwoWays coordinator(world("aaa", {"far"}), 0), other(world("aaa", {"far"}), 2);
  ASSERT_TRUE(coordinator.connect().is_ok());
  ASSERT_TRUE(other.connect().is_ok());
  EXPECT_THAT(coordinator.far->asked, ElementsAre(Pair("far:1", 0), Pair("far:1", 1), Pair("far:2", 1)));
  EXPECT_THAT(other.far->asked, ElementsAre(Pair("far:0", 1))) << "data is measured with rank 1";
  other.links.send_control(1, control::MessageType::kHeartbeat, {});
  EXPECT_FALSE(other.links.has_unsent_control()) << "there is no such channel";
}

TEST(LinksAcquire, of_a_peer_opens_two_data_channels_in_a_job_of_several_hosts_inside_a_host_as_well) {
  TwoWays other(world("aab", {"far"}), 1);
  ASSERT_TRUE(other.connect().is_ok());
  EXPECT_THAT(other.far->asked, ElementsAre(Pair("far:0", 0), Pair("far:0", 1), Pair("far:0", 2)))
      << "it is measured";
  EXPECT_TRUE(other.links.acquire(2).value());
  EXPECT_THAT(other.far->asked, ElementsAre(Pair("far:0", 0), Pair("far:0", 1), Pair("far:0", 2),
                                            Pair("far:2", 0), Pair("far:2", 2)));
  EXPECT_NE(other.links.data(2, 0), other.links.data(2, 1));
  EXPECT_EQ(data_channels(world("aa", {"far"})), 1u);
}

TEST(LinksAcquire, waits_for_all_data_channels_and_connects_once) {
  TwoWays two(world("ab", {"far"}));
  two.far->comes_up = false;
  EXPECT_EQ(two.links.transport_name(1), "none");
  EXPECT_FALSE(two.links.acquire(1).value());
  two.far->asked.clear();
  auto* const data = &two.far->channels[{1, data_channel(0)}];
  EXPECT_FALSE(two.links.acquire(1).value()) << "the second data channel is not up";
  two.far->channels[{1, data_channel(1)}];
  EXPECT_TRUE(two.links.acquire(1).value());
  EXPECT_EQ(two.links.data(1), data);
  EXPECT_THAT(two.far->asked, IsEmpty()) << "the first call asked already";
}

// The control messages that this rank has sent and not completed, by their first bytes.
std::vector<control::MessageType> sent_by(FakeTransport& transport, Rank peer) {
  std::vector<control::MessageType> types;
  for (const auto& bytes : transport.channels[{peer, kControlChannel}].spans)
    if (bytes.size() == control::kControlHeaderBytes && bytes[0] == std::byte{8})
      types.push_back(static_cast<control::MessageType>(bytes[4]));
  return types;
}

TEST(LinksAcquire, of_a_higher_rank_asks_it_to_dial_through_the_coordinator_and_of_a_lower_one_nobody) {
  TwoWays two(world("aaabb", {"far"}), 2);
  ASSERT_TRUE(two.connect().is_ok());
  two.far->comes_up = false;
  EXPECT_FALSE(two.links.acquire(1).value());
  EXPECT_THAT(sent_by(*two.far, 0), IsEmpty()) << "this rank dials";
  EXPECT_FALSE(two.links.acquire(4).value());
  EXPECT_FALSE(two.links.acquire(4).value());
  EXPECT_THAT(sent_by(*two.far, 0), ElementsAre(control::MessageType::kConnect)) << "once";
}

TEST(LinksAcquire, of_a_rank_that_has_dialled_already_asks_nobody) {
  TwoWays two(world("aabb", {"far"}), 2);
  ASSERT_TRUE(two.connect().is_ok());
  for (const size_t channel : {0u, 1u}) two.far->channels[{3, data_channel(channel)}];
  EXPECT_TRUE(two.links.acquire(3).value());
  EXPECT_THAT(sent_by(*two.far, 0), IsEmpty());
}

TEST(LinksFailure, is_the_first_cause_with_the_peer_it_is_about) {
  TwoWays two(world("abc", {"far"}));
  two.far->comes_up = false;
  two.far->losses = {{2, data_channel(0), {Code::kPermissionDenied, "the secret is another."}},
                     {1, data_channel(0), {Code::kPeerLost, "closed."}}};
  const Status status = two.connect();
  EXPECT_EQ(status.code, Code::kPermissionDenied);
  EXPECT_EQ(status.why, "connecting to rank 2 (host c, pid 102) failed: the secret is another.");
}

TEST(LinksFailure, of_no_peer_is_told_as_it_is) {
  TwoWays two(world("ab", {"far"}));
  two.far->comes_up = false;
  two.far->losses = {{-1, 0, {Code::kUnavailable, "out of file descriptors."}}};
  EXPECT_EQ(two.connect().why, "out of file descriptors.");
}

TEST(LinksFailure, to_begin_ends_the_wait_at_once) {
  TwoWays two(world("ab", {"far"}));
  two.far->refusal = {Code::kInvalidArgument, "no such address."};
  EXPECT_EQ(two.connect().why, "no such address.");
}

TEST(LinksFailure, by_time_names_every_peer_that_is_missing_and_where_it_was_looked_for) {
  TwoWays two(world("aab", {"near", "far"}));
  two.near->comes_up = false;
  const Status status = two.connect(0);
  EXPECT_EQ(status.code, Code::kTimeout);
  EXPECT_THAT(status.why,
              AllOf(HasSubstr("rank 1 (host a, pid 101) over near at near:1: it has not called this rank. "),
                    HasSubstr("RUEDA_START_TIMEOUT"), testing::Not(HasSubstr("rank 2"))));
}

TEST(LinksFailure, by_time_gives_the_last_reason_for_each_peer_that_was_dialled) {
  TwoWays two(world("abc", {"far"}), 2);
  two.far->comes_up = false;
  two.far->troubles = {{0, "Connection refused"}, {1, "No route to host"}};
  EXPECT_THAT(two.connect(0).why,
              AllOf(HasSubstr("from rank 2 (host c, pid 102) to "
                              "rank 0 (host a, pid 100) over far at far:0: Connection refused; "
                              "rank 1 (host b, pid 101) over far at far:1: No route to host. "),
                    HasSubstr("RUEDA_INTERFACE")));
}

// Alone: it compares how long two ranks wait.
TEST(LinksFailureAlone, by_time_comes_later_to_a_rank_that_is_dialled_than_to_the_dialler_who_knows_why) {
  TwoWays listener(world("ab", {"far"}), 0), dialler(world("ab", {"far"}), 1);
  listener.far->comes_up = dialler.far->comes_up = false;
  dialler.far->troubles = {{0, "Connection refused"}};
  const auto time_of = [](TwoWays& rank) {
    const Nanos began = monotonic_now();
    EXPECT_EQ(rank.connect(0).code, Code::kTimeout);
    return monotonic_now() - began;
  };
  const Nanos of_listener = time_of(listener);
  EXPECT_GE(of_listener, 500 * kMillisecond);
  EXPECT_LT(time_of(dialler), of_listener);
}

TEST(LinksFailure, by_time_of_a_thousand_peers_lists_a_few_and_counts_the_rest) {
  TwoWays two(world(std::string(1'000, 'a'), {"far"}), 999);
  two.far->comes_up = false;
  for (Rank peer = 0; peer < 999; ++peer) {
    two.far->troubles[peer] = "Connection refused";
    EXPECT_FALSE(two.links.acquire(peer).value());
  }
  const std::string why = two.connect(0).why;
  EXPECT_THAT(why, AllOf(HasSubstr("rank 5 (host a"), HasSubstr("; and 993 more. ")));
  EXPECT_LT(why.size(), 1'000u);
}

TEST(LinksUnanswered, are_the_peers_that_this_rank_dials_and_that_are_not_up_yet) {
  TwoWays two(world("abc", {"far"}), 1);
  EXPECT_EQ(two.links.unanswered(), "") << "nobody is dialled";
  two.far->comes_up = false;
  EXPECT_FALSE(two.links.acquire(0).value());
  EXPECT_FALSE(two.links.acquire(2).value());
  two.far->troubles = {{0, "Connection refused"}};
  EXPECT_EQ(two.links.unanswered(),
            "from rank 1 (host b, pid 101) to rank 0 (host a, pid 100) over far at far:0: Connection refused")
      << "rank 2 dials";
}

TEST(LinksFailure, of_another_rank_interrupts_the_wait) {
  TwoWays two(world("ab", {"far"}));
  two.far->comes_up = false;
  const Status status = two.links.connect_all(Deadline::after(60 * kSecond), [] {
    return Status(Code::kUnavailable, "another rank could not initialize.");
  });
  EXPECT_EQ(status.why, "another rank could not initialize.");
}

TEST(LinksRoundTrip, is_the_shortest_that_any_channel_knows) {
  TwoWays ways(world("ab", {"near", "far"}));
  ASSERT_TRUE(ways.connect().is_ok());
  ASSERT_TRUE(ways.links.acquire(1).value());
  EXPECT_EQ(ways.links.round_trip(1), 0) << "nothing counts it";
  ways.far->channels.at({1, data_channel(1)}).trip = 70;
  EXPECT_EQ(ways.links.round_trip(1), 70);
  ways.far->channels.at({1, data_channel(0)}).trip = 50;
  EXPECT_EQ(ways.links.round_trip(1), 50);
}

TEST(LinksStar, a_broadcast_keeps_one_copy_of_its_payload_for_all_peers) {
  TwoWays two(world("aaaa", {"far"}));
  ASSERT_TRUE(two.connect().is_ok());
  two.links.send_control_below(control::MessageType::kResponses, Bytes(1'000, std::byte{1}));
  std::set<const std::byte*> payloads;
  for (const Rank peer : {1, 2, 3}) {
    const FakeTransport::Channel& control = two.far->channels[{peer, kControlChannel}];
    ASSERT_EQ(control.spans.size(), 2u);
    EXPECT_EQ(control.spans[0].size(), control::kControlHeaderBytes);
    EXPECT_EQ(control.spans[1].size(), 1'000u);
    payloads.insert(control.spans[1].data());
  }
  EXPECT_EQ(payloads.size(), 1u);
  for (const Rank peer : {1, 2, 3})
    for (const Ticket ticket : two.far->channels[{peer, kControlChannel}].sent)
      two.far->done.push_back({ticket, Status::ok()});
  two.links.progress([](const Completion&) {});
  EXPECT_FALSE(two.links.has_unsent_control()) << "the last completion frees it";
}

TEST(LinksLoss, a_message_above_the_limit_is_not_sent_and_the_reason_is_its_size) {
  TwoWays two(world("ab", {"far"}));
  ASSERT_TRUE(two.connect().is_ok());
  two.links.send_control_below(control::MessageType::kResponses, Bytes(kMaxMessageBytes));
  EXPECT_THAT(two.links.take_losses(), IsEmpty());
  two.links.send_control_below(control::MessageType::kResponses, Bytes(kMaxMessageBytes + 1));
  const std::vector<Loss> losses = two.links.take_losses();
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_THAT(losses[0].status.why,
              AllOf(HasSubstr("a control message of 67108865 bytes exceeds the limit of 67108864"),
                    HasSubstr("smaller groups or process sets")));
  EXPECT_EQ((two.far->channels[{1, kControlChannel}].sent.size()), 2u) << "only the first was sent";
}

// UCX hears what peers say until it is destroyed. AddressSanitizer sees memory that is gone.
TEST(LinksEnd, keeps_the_buffers_of_control_messages_until_the_transports_have_ended) {
  size_t sent_bytes = 0;
  bool has_arrived = false;
  {
    TwoWays two(world("ab", {"far"}));
    ASSERT_TRUE(two.connect().is_ok());
    two.links.send_control(1, control::MessageType::kResponses, Bytes(1000));
    two.far->ends = [&](auto& channels) {
      FakeTransport::Channel& control = channels[{1, kControlChannel}];
      std::fill(control.posted.begin(), control.posted.end(), std::byte{1});
      has_arrived = !control.posted.empty();
      for (const std::span<const std::byte> bytes : control.spans)
        sent_bytes += static_cast<size_t>(std::count(bytes.begin(), bytes.end(), std::byte{0}));
    };
  }
  EXPECT_TRUE(has_arrived);
  EXPECT_GE(sent_bytes, 1000u);
}

TEST(LinksEnd, keeps_the_buffer_of_a_measurement_that_was_interrupted) {
  bool has_arrived = false;
  {
    TwoWays two(world("aa", {"near", "far"}), 1);
    ASSERT_TRUE(two.connect().is_ok());
    const auto stop = [] { return Status(Code::kShutDown, "stopped."); };
    ASSERT_FALSE(calibrate(two.links, 1, two.all, Deadline::after(60 * kSecond), stop).is_ok());
    two.near->ends = [&](auto& channels) {
      FakeTransport::Channel& data = channels[{0, data_channel(0)}];
      std::fill(data.posted.begin(), data.posted.end(), std::byte{1});
      has_arrived = !data.posted.empty();
    };
  }
  EXPECT_TRUE(has_arrived);
}

TEST(LinksLoss, is_reported_once_and_silences_its_control_channel) {
  TwoWays two(world("ab", {"far"}));
  ASSERT_TRUE(two.connect().is_ok());
  FakeTransport::Channel& control = two.far->channels[{1, kControlChannel}];
  two.links.send_control(1, control::MessageType::kHeartbeat, {});
  EXPECT_EQ(control.sent.size(), 1u);
  two.far->losses = {{1, kControlChannel, {Code::kPeerLost, "closed."}}};
  const std::vector<Loss> losses = two.links.take_losses();
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].status.why, "closed.");
  EXPECT_THAT(two.links.take_losses(), IsEmpty());
  two.links.send_control(1, control::MessageType::kHeartbeat, {});
  EXPECT_EQ(control.sent.size(), 1u);
  EXPECT_NE(two.links.data(1), nullptr) << "what arrived on the data channel can still be received";
}

}  // namespace
}  // namespace rueda::runtime::links_test
