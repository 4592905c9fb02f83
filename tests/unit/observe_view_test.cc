#include "observe/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "observe/fold.h"
#include "observe/job_view.h"
#include "observe/table.h"

namespace rueda::observe::view_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Process process(Rank rank, std::vector<InFlight> in_flight, Rank size = 3) {
  Process one;
  one.answer = {{"pid", 100 + rank}, {"rank", rank}};
  one.pid = one.own_pid = 100 + rank;
  one.job = "1234abcd";
  one.rank = rank;
  one.size = size;
  one.host = "a";
  one.in_flight_count = static_cast<int64_t>(in_flight.size());
  one.in_flight = std::move(in_flight);
  return one;
}
InFlight gradient(double age_s = 2) {
  return {.name = "grad", .what = "allreduce", .members = {}, .age_s = age_s};
}

TEST(View, an_answer_is_read_and_what_is_missing_keeps_its_default) {
  const Result<Process> read = parse_process(
      R"({"pid": 7, "rank": 1, "size": 2, "job": "ab", "steps": {"count": 5, "per_s": 2.5},
          "plan": {"is_active": true}, "in_flight_count": 1,
          "in_flight": [{"name": "g", "what": "allreduce", "process_set": 1, "members": [0, 1],
                         "age_s": 1.5}]})");
  ASSERT_TRUE(read.is_ok());
  EXPECT_EQ(read.value().rank, 1);
  EXPECT_EQ(read.value().steps_per_s, 2.5);
  EXPECT_TRUE(read.value().has_plan);
  EXPECT_THAT(read.value().in_flight.front().members, ElementsAre(0, 1));
  EXPECT_EQ(read.value().failure, "");
}

TEST(View, what_is_no_answer_is_refused_and_wrong_types_are_ignored) {
  for (const char* text : {"", "[]", "{}", "{\"pid\": ", "7"})
    EXPECT_FALSE(parse_process(text).is_ok()) << text;
  const Result<Process> read = parse_process(R"({"pid": "x", "rank": [], "steps": 3, "in_flight": [1, {}]})");
  ASSERT_TRUE(read.is_ok());
  EXPECT_EQ(read.value().rank, -1);
}

TEST(View, ranks_whose_processes_do_not_answer_are_named_if_one_job_alone_misses_some) {
  const std::vector<Process> here = {process(0, {gradient()}), process(1, {gradient()})};
  const std::vector<Absent> found = silent(here, {}, {{777, ProcessState::kStopped}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found.front().ranks, ElementsAre(2));
  EXPECT_THAT(status_table(here, found),
              HasSubstr("rank 2 on a: process 777 did not answer; it is stopped, and `kill -CONT 777`"));
  EXPECT_THAT(status_table(here, found), Not(HasSubstr("not among this user's processes")));
  EXPECT_THAT(waits_for(here[0], here), IsEmpty());
  EXPECT_THAT(waits_for(here[0], here, found), ElementsAre(2)) << "the others have submitted it";
  EXPECT_THAT(silent(here, {}, {}), IsEmpty());
  EXPECT_THAT(silent(here, {}, {{7}, {8}}), IsEmpty()) << "one of them belongs to another job";
  EXPECT_THAT(silent(here, found, {{777}}), IsEmpty()) << "already told";
}

TEST(View, ranks_of_hosts_that_nobody_reaches_are_named_with_their_host) {
  const Result<Process> read = parse_process(
      R"({"pid": 7, "rank": 0, "size": 6, "job": "ab", "host": "a", "elsewhere": [
          {"host": "b", "ranks": [2, 3]}, {"host": "c", "ranks": [4, 5]}, 3, {"ranks": "x"}]})");
  ASSERT_TRUE(read.is_ok());
  const std::vector<Absent> agents{
      {.job = "ab", .launcher = 1, .host = "c", .ranks = {4}, .why = "its agent is silent"}};
  const std::vector<Absent> found = unreached({read.value()}, agents);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(absent_text(found[0]),
            "ranks 2-3 on b: no rueda run reaches that host from here; run this command there");
  EXPECT_THAT(found[1].ranks, ElementsAre(5));
  const std::string table = status_table({read.value()}, found);
  EXPECT_THAT(table, HasSubstr("\nranks 2-3 on b: no rueda run"));
  EXPECT_THAT(table,
              HasSubstr("\nranks 1, 4: not among this user's processes on this host: RUEDA_STATUS is 0"));
}

TEST(View, a_process_of_a_container_is_shown_with_both_process_ids) {
  Process one = process(0, {});
  one.pid = 4711;
  EXPECT_THAT(status_table({one}, {}), HasSubstr("4711 (100)"));
  EXPECT_THAT(status_json({one}, {}), HasSubstr("\"pid_here\": 4711"));
  one.pid = 0;
  EXPECT_THAT(status_table({one}, {}), HasSubstr("- (100)"));
  EXPECT_THAT(status_json({process(0, {})}, {}), Not(HasSubstr("pid_here")));
}

TEST(WaitsFor, names_the_ranks_that_have_not_submitted_the_oldest_operation) {
  const std::vector<Process> all{process(0, {gradient()}), process(1, {}), process(2, {gradient()})};
  EXPECT_THAT(waits_for(all[0], all), ElementsAre(1));
  EXPECT_THAT(waits_for(all[1], all), IsEmpty());
}

TEST(WaitsFor, nobody_when_all_have_submitted_it_or_the_wait_is_short) {
  const std::vector<Process> all{process(0, {gradient()}), process(1, {gradient()})};
  EXPECT_THAT(waits_for(all[0], all), IsEmpty());
  const std::vector<Process> early{process(0, {gradient(0.1)}), process(1, {})};
  EXPECT_THAT(waits_for(early[0], early), IsEmpty());
}

TEST(WaitsFor, ranks_outside_the_process_set_joined_ranks_and_other_jobs_are_not_named) {
  InFlight in_set = gradient();
  in_set.members = {0, 1};
  std::vector<Process> all{process(0, {in_set}), process(1, {}), process(2, {})};
  EXPECT_THAT(waits_for(all[0], all), ElementsAre(1));
  all[1].in_flight = {{.name = "join", .what = "join", .members = {}, .age_s = 9}};
  all[1].in_flight_count = 1;
  EXPECT_THAT(waits_for(all[0], all), IsEmpty());
  std::vector<Process> other{process(0, {gradient()}), process(1, {})};
  other[1].job = "other";
  EXPECT_THAT(waits_for(other[0], other), IsEmpty());
}

TEST(WaitsFor, a_rank_whose_list_is_cut_is_not_blamed) {
  std::vector<Process> all{process(0, {gradient()}), process(1, {})};
  all[1].in_flight_count = 100;
  EXPECT_THAT(waits_for(all[0], all), IsEmpty());
}

TEST(Ranges, neighbours_are_joined) {
  EXPECT_EQ(ranges({}), "");
  EXPECT_EQ(ranges({5}), "5");
  EXPECT_EQ(ranges({3, 0, 1, 2, 7}), "0-3, 7");
}

TEST(Table, shows_who_waits_for_whom_and_which_ranks_are_elsewhere) {
  const std::vector<Process> all{process(0, {gradient()}), process(1, {})};
  const std::string table = status_table(all, {});
  EXPECT_THAT(table, HasSubstr("job 1234abcd: 2 of 3 ranks are here"));
  EXPECT_THAT(table, HasSubstr("rank 1"));
  EXPECT_THAT(table, HasSubstr("rank 2: not among this user's processes on this host"));
  EXPECT_THAT(status_json(all, {}), HasSubstr("\"waits_for\": [\n        1\n      ]"));
}

TEST(Table, shows_a_rank_whose_init_waits_for_others) {
  const Result<Process> read = parse_process(
      R"({"pid": 7, "rank": 1, "size": 4, "starting": {"for_s": 12.34, "missing": [2, 3, "x"]}})");
  ASSERT_TRUE(read.is_ok());
  EXPECT_EQ(read.value().rank, 1);
  EXPECT_EQ(read.value().size, 4);
  const std::string table = status_table({read.value()}, {});
  EXPECT_THAT(table, HasSubstr("a job that starts\n"));
  EXPECT_THAT(table, HasSubstr("ranks 2-3  init, 12.3 s"));
}

TEST(Table, names_the_stragglers_that_rank_0_tells_of) {
  const Result<Process> read = parse_process(
      R"({"pid": 7, "rank": 0, "size": 3, "job": "ab", "host": "a", "stragglers": [
          {"rank": 2, "host": "b", "share": 0.314, "window_s": 10.02}, 3, {"rank": "x"}]})");
  ASSERT_TRUE(read.is_ok());
  EXPECT_THAT(status_table({read.value()}, {}),
              HasSubstr("\nSTRAGGLER rank 2 (host b): the others waited 31 % of the last 10 s for it\n"));
  EXPECT_THAT(status_json({read.value()}, {}), HasSubstr("\"share\": 0.314"));
  EXPECT_THAT(status_table({process(0, {gradient()})}, {}), Not(HasSubstr("STRAGGLER")));
}

TEST(Table, says_what_a_rank_does_that_is_in_no_operation) {
  const auto does = [](const char* more) {
    const Result<Process> one =
        parse_process(R"({"pid": 1, "job": "a", "rank": 0, "size": 1)" + std::string(more) + "}");
    return status_table({one.value()}, {});
  };
  EXPECT_THAT(does(""), HasSubstr("  computes\n")) << "another release does not say";
  EXPECT_THAT(does(R"(, "cores": 0.6)"), HasSubstr("  computes\n"));
  EXPECT_THAT(does(R"(, "cores": 0.02)"), HasSubstr("  sleeps or waits: it uses no core\n"));
  EXPECT_THAT(does(R"(, "cores": 0.02, "input_for_s": 1.5)"), HasSubstr("  waits for input, 1.5 s\n"));
}

TEST(Table, control_characters_of_names_do_not_reach_the_terminal) {
  InFlight evil = gradient();
  evil.name = "a\x1b[2Jb";
  EXPECT_THAT(status_table({process(0, {evil})}, {}), Not(HasSubstr("\x1b")));
}

status::JobAnswer job_answer() {
  status::JobAnswer answer{.release = "x", .launcher = 50, .hosts = {}};
  answer.hosts.push_back(
      {.host = "b",
       .ranks = {1, 2},
       .processes = {
           {.rank = 1, .pid = 7, .text = R"({"pid": 7, "rank": 1, "size": 4, "job": "ab", "host": "b"})"},
           {.rank = 2, .pid = 8, .missing = "it has ended"}}});
  answer.hosts.push_back({.host = "c", .ranks = {3}, .missing = "its agent did not answer within 5 ms"});
  return answer;
}

TEST(JobView, ranks_that_did_not_answer_are_absent_with_the_reason_and_the_job_of_the_others) {
  const JobView view = view_of(job_answer());
  ASSERT_EQ(view.processes.size(), 1u);
  EXPECT_EQ(view.processes[0].reached_at, "b");
  ASSERT_EQ(view.absent.size(), 2u);
  EXPECT_EQ(view.absent[0].job, "ab");
  EXPECT_THAT(view.absent[0].ranks, ElementsAre(2));
  EXPECT_EQ(absent_text(view.absent[1]), "rank 3 on c: its agent did not answer within 5 ms");
  const std::string table = status_table(view.processes, view.absent);
  EXPECT_THAT(table, HasSubstr("rank 2 on b: it has ended\n"));
  EXPECT_THAT(table, HasSubstr("rank 0: not among"));  // nothing is known of this one
  EXPECT_THAT(status_json(view.processes, view.absent), HasSubstr("\"host\": \"c\""));
}

TEST(JobView, an_answer_that_is_none_makes_its_rank_absent) {
  status::JobAnswer answer = job_answer();
  answer.hosts[0].processes[0].text = "{";
  const JobView view = view_of(answer);
  EXPECT_TRUE(view.processes.empty());
  EXPECT_EQ(view.absent[0].job, "");
  EXPECT_THAT(status_table({}, view.absent), HasSubstr("job of rueda run, process 50: rank 1 on b: "));
}

nlohmann::json stacks(int pid, const std::string& function) {
  return {{"threads",
           {{{"tid", pid},
             {"name", "python"},
             {"python", {{{"file", "t.py"}, {"line", 3}, {"function", function}}}},
             {"native", {{{"function", "poll"}, {"module", "libc.so.6"}, {"offset", 7u}}}}},
            {{"tid", pid + 1},
             {"name", "pool"},
             {"python", nlohmann::json::array()},
             {"native", {{{"function", ""}, {"module", "libx.so"}, {"offset", 16u}}}}}}}};
}

RankStacks of(Rank rank, const char* function, const std::string& job = "ab") {
  const int pid = 10 * (rank + 1);
  return {.rank = rank, .pid = pid, .job = job, .host = "a", .stacks = stacks(pid, function)};
}

TEST(Fold, ranks_of_two_jobs_are_not_put_together) {
  const std::vector<RankStacks> all = {of(0, "wait"), of(1, "wait"), of(0, "wait", "cd")};
  EXPECT_EQ(folded(all, false),
            "job ab\nranks 0-1: main thread\n  wait (t.py:3)\n"
            "\n"
            "job cd\nrank 0: main thread\n  wait (t.py:3)\n");
  const auto json = nlohmann::json::parse(stacks_json(all))["ranks"];
  EXPECT_EQ(json[2]["job"], "cd");
  EXPECT_EQ(json[2]["host"], "a");
}

TEST(Fold, equal_stacks_are_shown_once_and_the_rarest_first) {
  const std::string text = folded({of(0, "wait"), of(1, "hang"), of(2, "wait")}, false);
  EXPECT_EQ(text,
            "rank 1: main thread\n  hang (t.py:3)\n"
            "\n"
            "ranks 0, 2: main thread\n  wait (t.py:3)\n");
}

TEST(Fold, native_frames_and_threads_without_python_are_shown_on_request) {
  const std::string text = folded({of(0, "wait"), of(1, "wait")}, true);
  EXPECT_EQ(text,
            "ranks 0-1: main thread\n  wait (t.py:3)\n  poll (libc.so.6)\n"
            "\n"
            "ranks 0-1: thread pool\n  libx.so+0x10\n");
}

TEST(Fold, a_rank_without_python_stacks_says_why) {
  nlohmann::json none = {{"python_missing", "the program has taken signal 62"}, {"threads", nullptr}};
  EXPECT_THAT(folded({{.rank = 3, .pid = 10, .job = "ab", .host = "a", .stacks = none}}, false),
              HasSubstr("rank 3: no Python stacks: the program has taken"));
}

}  // namespace
}  // namespace rueda::observe::view_test
