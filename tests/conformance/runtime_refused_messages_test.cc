// What an engine does with a well-formed control message that cannot be true: the job ends, with a sentence
// that names the sender and the contradiction, and the process lives on.
#include "engine_job.h"

namespace rueda::runtime::refused_messages_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The liar has no engine: it sends one message over its links, and waits for the news that the
// other rank has ended.
class RefusedMessages : public testing::TestWithParam<std::string> {
 protected:
  // How an operation of the other rank ends, and the news that the liar gets.
  struct Outcome {
    Status status;
    std::string news;
  };
  Outcome lie(Rank liar, control::MessageType type, const Bytes& payload) {
    const Job job(2, GetParam());
    Outcome outcome;
    std::thread lying([&] {
      const Result<Session> session = job.start(liar);
      ASSERT_TRUE(session.is_ok()) << session.status().why;
      Links& links = *session.value().links;
      links.send_control(1 - liar, type, payload);
      for (const Deadline deadline = Deadline::after(20 * kSecond); !deadline.is_past();) {
        if (!links.progress([](const transport::Completion&) {})) links.sleep(Deadline::after(kMillisecond));
        for (const ControlMessage& message : links.take_control()) {
          if (message.type != control::MessageType::kAbort) continue;
          outcome.news = control::decode_abort(message.payload).value().why;
          return;
        }
      }
    });
    Result<Session> session = job.start(1 - liar);
    EXPECT_TRUE(session.is_ok()) << session.status().why;
    if (session.is_ok()) {
      const std::shared_ptr<Engine> engine = Engine::start(std::move(session).value()).value();
      std::vector<float> data(4);
      outcome.status = run_one(*engine, make_tensor(Collective::kAllreduce, "x", {4}, data.data()));
    }
    lying.join();
    return outcome;
  }
  static Bytes encoded(control::Response response) {
    return control::encode(std::vector<control::Response>{std::move(response)});
  }
};

TEST_P(RefusedMessages, the_end_of_a_plan_that_this_rank_does_not_run_ends_the_job) {
  const Outcome outcome =
      lie(0, control::MessageType::kResponses, encoded(control::PlanEnd{.runs = {7}, .flows = {}}));
  EXPECT_EQ(outcome.status.code, Code::kInternal);
  EXPECT_THAT(outcome.status.why,
              AllOf(HasSubstr("rank 0 (host"), HasSubstr("plan ends"), HasSubstr("none")));
  EXPECT_EQ(outcome.news, outcome.status.why);
}

TEST_P(RefusedMessages, a_plan_without_buckets_ends_the_job) {
  const Outcome outcome =
      lie(0, control::MessageType::kResponses, encoded(control::PlanBegin{.plan_number = 1, .sets = {}}));
  EXPECT_THAT(outcome.status.why, AllOf(HasSubstr("rank 0 (host"), HasSubstr("without buckets")));
  EXPECT_EQ(outcome.news, outcome.status.why);
}

TEST_P(RefusedMessages, responses_to_rank_0_end_the_job) {
  const Outcome outcome =
      lie(1, control::MessageType::kResponses, encoded(control::PlanEnd{.runs = {0}, .flows = {}}));
  EXPECT_THAT(outcome.status.why, AllOf(HasSubstr("rank 1 (host"), HasSubstr("only rank 0")));
  EXPECT_EQ(outcome.news, outcome.status.why);
}

INSTANTIATE_TEST_SUITE_P(Transports, RefusedMessages, testing::Values("shm,tcp", "tcp"),
                         [](const auto& info) { return info.param == "tcp" ? "tcp" : "shm"; });

}  // namespace
}  // namespace rueda::runtime::refused_messages_test
