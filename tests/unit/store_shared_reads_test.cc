// Questions of several clients that become one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rueda/store/shared_reads.h"
#include "rueda/store/store.h"

namespace rueda::store::shared_reads_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Reads : public ::testing::Test {
 protected:
  void get(ClientId client, Nanos wait, Nanos age) {
    reads_.take(client, {.op = Op::kShare, .key = "k", .value = "", .amount = wait, .limit = age}, now_,
                out_);
  }
  void look(ClientId client, Nanos age) { get(client, 0, age); }
  // Answers the oldest question.
  void answer(const Reply& reply) {
    ASSERT_FALSE(out_.questions.empty());
    const QuestionId question = out_.questions.front().first;
    out_.questions.erase(out_.questions.begin());
    reads_.answered(question, reply, now_, out_);
  }
  std::vector<ClientId> answered(Code code) {
    std::vector<ClientId> clients;
    for (const auto& [client, reply] : std::exchange(out_.replies, {})) {
      EXPECT_EQ(reply.code, code);
      clients.push_back(client);
    }
    return clients;
  }

  SharedReads reads_{1};
  BoardOutput out_;
  Nanos now_ = 5 * kSecond;
};

TEST_F(Reads, those_that_wait_for_a_value_that_never_changes_share_one_question) {
  for (ClientId client = 1; client <= 20; ++client) {
    get(client, kSecond, kAnyAge);
    now_ += kMillisecond;
  }
  ASSERT_THAT(out_.questions, SizeIs(1));
  EXPECT_EQ(out_.questions.front().second.op, Op::kGet);
  answer({.text = "table"});
  EXPECT_THAT(answered(Code::kOk), SizeIs(20));
  now_ += 100 * kSecond;
  get(21, kSecond, kAnyAge);
  EXPECT_THAT(answered(Code::kOk), ElementsAre(21));
  EXPECT_THAT(out_.questions, IsEmpty());
}

TEST_F(Reads, an_answer_is_never_older_than_allowed) {
  look(1, 20 * kMillisecond);
  answer({.text = "old"});
  EXPECT_THAT(answered(Code::kOk), ElementsAre(1));
  now_ += 20 * kMillisecond;
  look(2, 20 * kMillisecond);
  EXPECT_THAT(answered(Code::kOk), ElementsAre(2));
  now_ += kMillisecond;
  look(3, 20 * kMillisecond);
  EXPECT_THAT(answered(Code::kOk), IsEmpty());
  answer({.text = "new"});
  EXPECT_THAT(answered(Code::kOk), ElementsAre(3));
}

TEST_F(Reads, who_wants_a_fresh_answer_does_not_get_that_of_an_earlier_question) {
  look(1, 0);
  now_ += 1;
  look(2, 0);
  ASSERT_THAT(out_.questions, SizeIs(1));
  answer({.code = Code::kUnavailable, .text = ""});
  EXPECT_THAT(answered(Code::kUnavailable), ElementsAre(1));
  answer({.text = "now"});
  EXPECT_THAT(answered(Code::kOk), ElementsAre(2));
}

TEST_F(Reads, that_a_key_is_missing_is_an_answer_to_a_look_and_none_to_a_wait) {
  look(1, kSecond);
  answer({.code = Code::kUnavailable, .text = ""});
  look(2, kSecond);
  EXPECT_THAT(answered(Code::kUnavailable), ElementsAre(1, 2));
  get(3, kSecond, kSecond);
  EXPECT_THAT(out_.questions, SizeIs(1));
}

TEST_F(Reads, each_waits_as_long_as_it_has_said) {
  get(1, 100 * kMillisecond, kAnyAge);
  now_ += 50 * kMillisecond;
  get(2, 100 * kMillisecond, kAnyAge);
  EXPECT_EQ(reads_.due(), now_ + 50 * kMillisecond);
  now_ += 50 * kMillisecond;
  reads_.expire(now_, out_);
  EXPECT_THAT(answered(Code::kTimeout), ElementsAre(1));
  answer({.code = Code::kTimeout, .text = ""});  // to the question of the first
  EXPECT_THAT(answered(Code::kTimeout), IsEmpty());
  ASSERT_THAT(out_.questions, SizeIs(1)) << "for the other";
  EXPECT_EQ(out_.questions.front().second.amount, 50 * kMillisecond);
  answer({.text = "value"});
  EXPECT_THAT(answered(Code::kOk), ElementsAre(2));
  EXPECT_EQ(reads_.due(), std::nullopt);
}

TEST_F(Reads, a_client_that_has_gone_is_not_answered) {
  get(1, kSecond, kAnyAge);
  get(2, kSecond, kAnyAge);
  reads_.forget(1);
  answer({.text = "value"});
  EXPECT_THAT(answered(Code::kOk), ElementsAre(2));
}

TEST_F(Reads, faults_of_the_store_reach_all) {
  get(1, kSecond, kAnyAge);
  answer({.code = Code::kInvalidArgument, .text = "no"});
  EXPECT_THAT(answered(Code::kInvalidArgument), ElementsAre(1));
  get(2, kSecond, kAnyAge);
  EXPECT_THAT(out_.questions, SizeIs(1)) << "and are not kept";
}

TEST_F(Reads, what_is_known_is_bounded) {
  const std::string large(size_t{1} << 20, 'x');
  for (int i = 0; i < 200; ++i) {
    reads_.take(1, {.op = Op::kShare, .key = "k" + std::to_string(i), .value = "", .limit = kAnyAge}, now_,
                out_);
    answer({.text = large});
  }
  EXPECT_LE(reads_.known_bytes(), SharedReads::kMaxKnownBytes);
}

}  // namespace
}  // namespace rueda::store::shared_reads_test
