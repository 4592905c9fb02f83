#include "launch/elastic_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/agent_tries.h"
#include "launch/elastic_words.h"

namespace rueda::launch::elastic_job_test {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Views : public membership::Register {
 public:
  Result<membership::View> propose(const membership::View& next) override { return next; }
};

// A job whose effects are only noted. Each host has an agent unless it is in `away`.
class Job {
 public:
  Job(ElasticOptions options, const std::vector<HostSlots>& hosts, int size)
      : options_(std::move(options)), job_(options_, size, effects()) {
    const auto placements = place_ranks(hosts, size);
    job_.begin(hosts, placements.value(), 0);
    EXPECT_TRUE(job_.open(std::make_unique<Views>(), 0).is_ok());
  }
  void end(int number, int exit_code, Nanos now, int signal = 0) {
    Ending ending{.rank = number, .host = "a", .pid = 7, .exit_code = exit_code, .signal = signal};
    endings.push_back(ending);
    job_.on_ended(ending, now);
    job_.tick(now);
  }
  void ready(const std::string& uid, int64_t after, int64_t commit, Nanos now,
             const std::string& cut_from = {}) {
    const membership::Ready said{.uid = uid,
                                 .host = uid.substr(0, 1),
                                 .after = after,
                                 .commit = commit,
                                 .digest = {},
                                 .cut_from = cut_from};
    const Bytes raw = encode(said);
    job_.inbox().on_set(membership::ready_key(uid), {reinterpret_cast<const char*>(raw.data()), raw.size()});
    job_.tick(now);
  }
  // All members of its view, which is asked to leave, come to commit 10.
  void reach_common_commit(const std::vector<int>& numbers) {
    for (int round = 0; round < 2; ++round)
      for (const int number : numbers) {
        const status::ViewChange change = changes[number];
        job_.on_board({.rank = number, .round = change.round, .commit = 9, .answer = 1});
      }
  }
  ElasticJob& operator*() { return job_; }
  ElasticJob* operator->() { return &job_; }

  std::vector<std::string> said, started;
  std::vector<int> killed;
  std::map<int, status::ViewChange> changes;
  std::set<std::string> away;
  std::vector<Ending> endings;

 private:
  ElasticJob::Effects effects() {
    return {.start = [this](const std::string& host, const Variables&) { started.push_back(host); },
            .end = [this](int number) { killed.push_back(number); },
            .change = [this](int number, const status::ViewChange& change) { changes[number] = change; },
            .put = [](const std::string&, const std::string&) {},
            .say = [this](const std::string& sentence) { said.push_back(sentence); },
            .reach = [this](const std::string& host) { return !away.contains(host); }};
  }
  ElasticOptions options_;
  ElasticJob job_;
};

TEST(ElasticJob, a_member_that_ends_well_early_is_told_and_replaced) {
  Job job({.least = 2, .most = 2}, {{"a", 2}}, 2);
  job.end(1, 0, kSecond);
  EXPECT_THAT(job.said, IsEmpty()) << "the other one may end, too";
  EXPECT_THAT(job.started, IsEmpty());
  job.ready("a:0#0", 1, 5, 2 * kSecond);
  EXPECT_THAT(job.said, Contains(HasSubstr("exited with code 0 (process a:1#0 of view 1) while the others "
                                           "went on; it counts as lost")));
  EXPECT_THAT(job.started, ElementsAre("a"));
}

TEST(ElasticJob, members_that_all_end_well_are_no_loss) {
  Job job({.least = 1, .most = 2}, {{"a", 2}}, 2);
  job.end(1, 0, kSecond);
  job.end(0, 0, kSecond);
  EXPECT_TRUE(job->is_over());
  EXPECT_THAT(job.said, IsEmpty());
  EXPECT_THAT(job.started, IsEmpty());
}

TEST(ElasticJob, a_host_that_was_told_to_go_leaves_at_a_commit_and_is_replaced_before_it_has_left) {
  Job job({.least = 1, .most = 2}, {{"a", 1}, {"b", 1}, {"c", 1}}, 2);
  EXPECT_TRUE(job->on_host_leaving("b"));
  job->tick(kSecond);
  EXPECT_THAT(job.started, ElementsAre("c"));
  EXPECT_TRUE(job.changes[1].does_leave);
  EXPECT_FALSE(job.changes[0].does_leave);
  EXPECT_FALSE(job->has_left("b"));
  job.reach_common_commit({0, 1});
  EXPECT_EQ(job.changes[1].phase, status::ViewChange::Phase::kConfirmed);
  job.ready("a:0#0", 1, 10, 2 * kSecond);
  job.end(1, 75, 2 * kSecond);
  EXPECT_TRUE(job->has_left("b"));
  EXPECT_THAT(job.said, Contains(HasSubstr("view 2 has 1 rank; gone: b:0#0")));
  EXPECT_THAT(job.said, Not(Contains(HasSubstr("exited with code 75"))));
  EXPECT_THAT(job.started, ElementsAre("c")) << "nothing starts on b";
}

TEST(ElasticJob, the_last_host_cannot_be_left) {
  Job job({.least = 1, .most = 2}, {{"a", 1}, {"b", 1}}, 2);
  EXPECT_TRUE(job->on_host_leaving("b"));
  EXPECT_FALSE(job->on_host_leaving("a"));
}

TEST(ElasticJob, a_process_that_was_told_to_leave_does_not_decide_how_the_job_has_ended) {
  Job job({.least = 1, .most = 2}, {{"a", 2}}, 2);
  job->on_leaving(1);
  EXPECT_THAT(job.said,
              Contains("process a:1#0 was told by SIGTERM to leave; it does so at the next commit"));
  job->tick(0);
  job.end(1, 75, kSecond);
  job.end(0, 0, kSecond);
  EXPECT_TRUE(job->is_over());
  EXPECT_THAT(job->deciding(job.endings), Each(::testing::Field(&Ending::rank, 0)));
}

TEST(ElasticJob, only_a_process_that_is_needed_no_more_may_leave) {
  Job job({.least = 1, .most = 1}, {{"a", 1}, {"b", 1}}, 1);
  job->on_leaving(0);
  job->tick(0);
  EXPECT_THAT(job.changes, IsEmpty()) << "nobody else has the state";
  EXPECT_THAT(job.started, ElementsAre("b"));
}

TEST(ElasticJob, a_process_that_rueda_has_ended_is_said_to_be) {
  Job job({.least = 1, .most = 2}, {{"a", 2}}, 2);
  const status::JobNews news{.held = {{.rank = 1, .state = ProcessState::kStopped}}, .without_agent = {}};
  job->on_held("a", news, 2 * kSecond);
  job->tick(6 * kSecond);
  EXPECT_THAT(job.killed, ElementsAre(1));
  job.end(1, 0, 6 * kSecond, SIGKILL);
  EXPECT_EQ(job->deciding(job.endings)[0].trouble, "was ended by rueda: it had been stopped for 5 s");
}

TEST(ElasticJob, a_host_that_comes_back_is_used_again) {
  Job job({.least = 1, .most = 2}, {{"a", 1}, {"b", 1}}, 2);
  job.away.insert("b");
  job->on_host_lost("b");
  job.end(1, 1, kSecond);
  job.ready("a:0#0", 1, 5, kSecond);
  job->tick(60 * kSecond);
  EXPECT_THAT(job.started, IsEmpty());
  job.away.clear();
  job->tick(61 * kSecond);
  EXPECT_THAT(job.started, ElementsAre("b"));
}

TEST(ElasticJob, a_host_that_is_cut_again_rests_longer_only_if_nobody_from_there_has_trained_since) {
  Job job({.least = 1, .most = 2}, {{"a", 1}, {"b", 1}}, 2);
  Nanos now = kSecond;
  int64_t commit = 5;
  const auto is_cut = [&](int life, int number, int64_t known) {
    const std::string b = "b:0#" + std::to_string(life);
    const int64_t view = job->view();
    job.ready("a:0#0", view, commit, now, b);
    job.ready(b, view, known, now, "a:0#0");
    EXPECT_EQ(job->view(), view + 1);
    EXPECT_EQ(job->rank_of(number), -1);
    job.end(number, 75, now);
  };
  const auto joins = [&](int life) {
    job.ready("b:0#" + std::to_string(life), 0, membership::kNoCommit, now);
    job.reach_common_commit({0});
    job.ready("a:0#0", job->view(), commit, now);
    EXPECT_EQ(job->rank_of(1 + life), 1);
  };
  for (int life = 0; life < 3; ++life) {
    is_cut(life, 1 + life, ++commit);
    job->tick(now + kCutRest - 1);
    EXPECT_EQ(std::ssize(job.started), life);
    job->tick(now += kCutRest);
    ASSERT_EQ(std::ssize(job.started), life + 1) << "it has trained in between, so a minute is enough";
    joins(life + 1);
  }
  is_cut(3, 4, membership::kNoCommit);  // it could not get the state
  job->tick(now + kCutRest);
  EXPECT_EQ(std::ssize(job.started), 3);
  job->tick(now + 2 * kCutRest);
  EXPECT_EQ(std::ssize(job.started), 4);
}

TEST(ElasticJob, members_that_never_commit_are_said_once_to_keep_others_waiting) {
  Job job({.least = 1, .most = 2}, {{"a", 1}, {"b", 1}, {"c", 1}}, 2);
  EXPECT_TRUE(job->on_host_leaving("b"));
  job->tick(kSecond);
  EXPECT_EQ(job->next(kSecond), 61 * kSecond);
  job->tick(60 * kSecond);
  EXPECT_THAT(job.said, Not(Contains(HasSubstr("state.commit()"))));
  for (int seconds = 61; seconds < 200; ++seconds) job->tick(seconds * kSecond);
  EXPECT_THAT(job.said, Contains(HasSubstr("common commit for 60 s, and only there others can join or leave; "
                                           "let the script call state.commit() every few steps"))
                            .Times(1));
}

TEST(ElasticWords, one_rank_is_one_rank) {
  const membership::View view{.number = 2, .members = {{.uid = "a:0#0", .host = "a"}}, .lost = {"b:0#0"}};
  EXPECT_EQ(describe_view(view), "view 2 has 1 rank; gone: b:0#0");
}

TEST(AgentTries, come_after_1_2_4_and_60_s_at_most_and_each_reason_is_told_once) {
  AgentTries tries;
  Nanos now = kSecond;
  for (const Nanos pause : {1, 2, 4, 8, 16, 32, 60, 60}) {
    EXPECT_EQ(tries.on_lost("b", "no route", now), pause == 1);
    EXPECT_TRUE(tries.rests("b"));
    EXPECT_FALSE(tries.begins("b", now + pause * kSecond - 1));
    now += pause * kSecond;
    EXPECT_TRUE(tries.begins("b", now));
    EXPECT_FALSE(tries.rests("b"));
  }
  EXPECT_TRUE(tries.on_lost("b", "no such host", now));
}

}  // namespace
}  // namespace rueda::launch::elastic_job_test
