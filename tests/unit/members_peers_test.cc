#include "rueda/members/member_peers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../soon.h"
#include "rueda/members/own_words.h"

namespace rueda::members::peers_test {
namespace {

class Peers : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "rueda-peers-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::ofstream(folder_ / "secret") << std::string(64, '7');
    chmod((folder_ / "secret").c_str(), 0600);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<MemberStore> open() {
    store::World world;
    world.rank = 1;
    world.size = 2;
    world.job = "job";
    world.url = "tcp://127.0.0.1:20000";  // of rank 0: this one serves at the next port that is free
    world.secret_file = (folder_ / "secret").string();
    Result<std::unique_ptr<MemberStore>> made = MemberStore::open(world, "", false, soon());
    EXPECT_TRUE(made.is_ok()) << made.status().why;
    return made.is_ok() ? std::move(made).value() : nullptr;
  }

  std::filesystem::path folder_;
};

// As a member of another host sees it, so that nothing is known of its process.
membership::Member member_of(const MemberStore& store, int64_t pid) {
  Contact contact = store.contact();
  contact.pid = pid;
  return {.uid = "b:0#0", .host = "b", .contact = to_text(contact)};
}

TEST_F(Peers, a_member_that_is_there_answers) {
  const std::unique_ptr<MemberStore> own = open(), other = open();
  ASSERT_TRUE(own && other);
  other->put("key", "value");
  MemberPeers peers(*own, "a");
  const Said said = peers.value(member_of(*other, getpid()), "key");
  EXPECT_EQ(said.how, Said::How::kYes);
  EXPECT_EQ(said.text, "value");
  EXPECT_EQ(peers.value(member_of(*other, getpid()), "nothing").how, Said::How::kNotYet);
}

// Found by tests/punish: survivors of a host waited for ever for the word of a member that had ended, because
// a process that was to take its place listened at its port.
TEST_F(Peers, another_process_at_the_port_of_a_member_is_not_taken_for_it) {
  const std::unique_ptr<MemberStore> own = open(), other = open();
  ASSERT_TRUE(own && other);
  other->put("key", "value");
  MemberPeers peers(*own, "a");
  EXPECT_EQ(peers.value(member_of(*other, getpid() + 1), "key").how, Said::How::kSilent);
  EXPECT_EQ(peers.value(member_of(*other, getpid() + 1), "nothing").how, Said::How::kSilent);
}

// The same where the member was connected before: a connection that is lost is not opened to whoever listens
// there now.
TEST_F(Peers, a_member_that_has_ended_is_not_taken_for_the_process_that_has_its_port_now) {
  const std::unique_ptr<MemberStore> own = open();
  std::unique_ptr<MemberStore> other = open();
  ASSERT_TRUE(own && other);
  other->put("key", "value");
  MemberPeers peers(*own, "a");
  const membership::Member member = member_of(*other, getpid());
  EXPECT_EQ(peers.value(member, "key").how, Said::How::kYes);
  const int port = other->contact().port;
  other.reset();
  other = open();
  ASSERT_EQ(other->contact().port, port) << "the port was free";
  other->put(std::string(kContactKey), "of another process");
  EXPECT_EQ(peers.value(member, "key").how, Said::How::kSilent);
  other->put(std::string(kContactKey), to_text(other->contact()));
  EXPECT_EQ(peers.value(member, "key").how, Said::How::kNotYet) << "this is the member again";
}

TEST_F(Peers, a_member_whose_connection_was_lost_is_asked_again) {
  const std::unique_ptr<MemberStore> own = open();
  std::unique_ptr<MemberStore> other = open();
  ASSERT_TRUE(own && other);
  MemberPeers peers(*own, "a");
  const membership::Member member = member_of(*other, getpid());
  EXPECT_EQ(peers.value(member, "key").how, Said::How::kNotYet);
  other.reset();  // as far as the connection is concerned
  other = open();
  ASSERT_EQ(to_text(other->contact()), member.contact);
  other->put("key", "value");
  const Said said = peers.value(member, "key");
  EXPECT_EQ(said.how, Said::How::kYes);
  EXPECT_EQ(said.text, "value");
}

}  // namespace
}  // namespace rueda::members::peers_test
