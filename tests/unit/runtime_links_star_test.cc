// What travels on the control channels of a star around rank 0, over the simulator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "rueda/runtime/links.h"
#include "rueda/transport/sim/sim.h"
#include "runtime_links_world.h"

namespace rueda::runtime::links_star_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using transport::Completion;
using transport::Loss;
using transport::Ticket;

// Links of all ranks in one thread, over the simulator.
class Star {
 public:
  // is_whole: with data channels between all pairs.
  explicit Star(Rank size, bool is_whole = true) : network_({.size = size, .seed = 5}) {
    all_ = world(std::string(static_cast<size_t>(size), 'a'), {"sim"});
    for (Rank rank = 0; rank < size; ++rank) {
      std::vector<OpenTransport> transports;
      transports.push_back({TransportScope::kNetwork, network_.make(rank)});
      links_.push_back(std::make_unique<Links>(std::move(transports), rank, all_));
    }
    for (const auto& one : links_) EXPECT_TRUE(one->begin_connecting().is_ok());
    EXPECT_TRUE(step_until([this, is_whole] { return is_whole ? is_up() : has_control(); }));
  }

  Links& at(Rank rank) { return *links_[static_cast<size_t>(rank)]; }
  transport::SimNetwork& network() { return network_; }
  std::vector<ControlMessage>& messages(Rank rank) { return messages_[rank]; }

  bool step_until(const std::function<bool()>& condition) {
    for (int step = 0; step < 10'000; ++step) {
      if (condition()) return true;
      for (Rank rank = 0; rank < size(); ++rank) {
        at(rank).progress([this, rank](const Completion& done) { data_[rank].push_back(done.ticket); });
        for (ControlMessage& message : at(rank).take_control()) messages_[rank].push_back(std::move(message));
      }
    }
    return false;
  }
  std::vector<Ticket>& data(Rank rank) { return data_[rank]; }

 private:
  [[nodiscard]] Rank size() const { return static_cast<Rank>(links_.size()); }
  bool has_control() {
    return std::ranges::all_of(links_, [](const auto& one) { return one->take_all_channels(); });
  }
  bool is_up() {
    bool up = true;
    for (Rank rank = 0; rank < size(); ++rank)
      for (Rank peer = 0; peer < size(); ++peer)
        if (peer != rank) up = at(rank).acquire(peer).value() && up;
    return up;
  }

  transport::SimNetwork network_;
  std::vector<PeerInfo> all_;
  std::vector<std::unique_ptr<Links>> links_;
  std::map<Rank, std::vector<ControlMessage>> messages_;
  std::map<Rank, std::vector<Ticket>> data_;
};

Bytes text(std::string_view of) {
  const auto raw = std::as_bytes(std::span(of));
  return {raw.begin(), raw.end()};
}

TEST(LinksStar, frames_of_one_rank_arrive_whole_and_in_order) {
  Star star(3);
  const Bytes large(50'000, std::byte{7});
  star.at(1).send_control(0, control::MessageType::kRequests, large);
  star.at(1).send_control(0, control::MessageType::kHeartbeat, {});
  star.at(1).send_control(0, control::MessageType::kFacts, text("last"));
  star.at(2).send_control(0, control::MessageType::kShutdown, {});
  ASSERT_TRUE(star.step_until([&] { return star.messages(0).size() == 4; }));
  std::vector<std::pair<control::MessageType, Bytes>> of_first;
  for (const ControlMessage& message : star.messages(0))
    if (message.from == 1) of_first.emplace_back(message.type, message.payload);
  EXPECT_THAT(of_first, ElementsAre(Pair(control::MessageType::kRequests, large),
                                    Pair(control::MessageType::kHeartbeat, Bytes()),
                                    Pair(control::MessageType::kFacts, text("last"))));
  EXPECT_TRUE(star.step_until([&] { return !star.at(1).has_unsent_control(); }));
}

TEST(LinksStar, what_goes_to_those_below_reaches_every_child) {
  Star star(4);
  star.at(0).send_control_below(control::MessageType::kStallReport, text("slow"));
  ASSERT_TRUE(star.step_until(
      [&] { return !star.messages(1).empty() && !star.messages(2).empty() && !star.messages(3).empty(); }));
  for (const Rank rank : {1, 2, 3}) {
    EXPECT_EQ(star.messages(rank)[0].from, 0);
    EXPECT_EQ(star.messages(rank)[0].payload, text("slow"));
  }
  EXPECT_THAT(star.messages(0), IsEmpty());
}

TEST(LinksStar, frames_put_back_come_before_later_ones) {
  Star star(2);
  star.at(1).send_control(0, control::MessageType::kHeartbeat, text("second"));
  ASSERT_TRUE(star.step_until([&] { return !star.messages(0).empty(); }));
  std::vector<ControlMessage> messages = std::move(star.messages(0));
  star.at(0).put_back_control({std::move(messages[0])});
  star.at(0).put_back_control({{.from = 1, .payload = text("first")}});
  messages = star.at(0).take_control();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].payload, text("first"));
  EXPECT_EQ(messages[1].payload, text("second"));
}

TEST(LinksStar, data_is_handed_to_its_owner_and_is_no_control_message) {
  Star star(2);
  const Bytes sent(100, std::byte{1});
  Bytes received(100);
  star.at(0).data(1)->send(11, sent);
  star.at(1).data(0)->recv(12, received);
  ASSERT_TRUE(star.step_until([&] { return !star.data(0).empty() && !star.data(1).empty(); }));
  EXPECT_THAT(star.data(0), ElementsAre(11));
  EXPECT_THAT(star.data(1), ElementsAre(12));
  EXPECT_EQ(received, sent);
  EXPECT_THAT(star.messages(1), IsEmpty());
}

TEST(LinksStar, a_rank_that_wants_nothing_is_asked_to_dial_one_that_waits_for_it) {
  Star star(4, false);
  EXPECT_FALSE(star.at(2).acquire(3).value());
  EXPECT_TRUE(star.step_until([&] { return star.at(2).acquire(3).value(); })) << "rank 0 has passed it on";
  EXPECT_NE(star.at(2).data(3), nullptr);
  for (const Rank rank : {0, 1, 2, 3}) EXPECT_THAT(star.messages(rank), IsEmpty()) << "links keep it";
  EXPECT_FALSE(star.at(0).acquire(2).value());
  EXPECT_TRUE(star.step_until([&] { return star.at(0).acquire(2).value(); })) << "rank 0 asks by itself";
}

TEST(LinksLoss, a_request_to_dial_that_no_rank_can_send_loses_the_control_channel_it_came_on) {
  for (const auto& [whom, to] : {std::pair{1, 1}, {0, 1}, {5, 0}, {2, -1}}) {
    Star star(3, false);
    std::vector<Loss> losses;
    star.at(1).send_control(0, control::MessageType::kConnect,
                            control::encode(control::ConnectRequest{.whom = whom, .to = to}));
    ASSERT_TRUE(star.step_until([&] {
      losses = star.at(0).take_losses();
      return !losses.empty();
    }));
    EXPECT_EQ(losses[0].peer, 1);
    EXPECT_EQ(losses[0].channel, kControlChannel);
  }
}

TEST(LinksLoss, a_lost_rank_is_named_on_each_of_its_channels_and_the_others_go_on) {
  Star star(3);
  star.network().drop(2, {Code::kPeerLost, "rank 2 was unplugged."});
  std::vector<uint16_t> channels;
  for (const Loss& loss : star.at(0).take_losses()) {
    EXPECT_EQ(loss.peer, 2);
    EXPECT_EQ(loss.status.why, "rank 2 was unplugged.");
    channels.push_back(loss.channel);
  }
  EXPECT_THAT(channels, testing::UnorderedElementsAre(data_channel(0), kControlChannel));
  EXPECT_THAT(star.at(1).take_losses(), testing::SizeIs(1)) << "it has no control channel to rank 2";
  star.at(0).send_control_below(control::MessageType::kAbort, text("verdict"));
  EXPECT_TRUE(star.step_until([&] { return !star.messages(1).empty(); }));
}

TEST(LinksLoss, what_is_no_control_message_loses_the_control_channel_it_came_on) {
  Star star(2);
  std::vector<Loss> losses;
  star.at(1).send_control(0, static_cast<control::MessageType>(0xff), {});
  ASSERT_TRUE(star.step_until([&] {
    losses = star.at(0).take_losses();
    return !losses.empty();
  }));
  EXPECT_EQ(losses[0].peer, 1);
  EXPECT_EQ(losses[0].channel, kControlChannel);
}

}  // namespace
}  // namespace rueda::runtime::links_star_test
