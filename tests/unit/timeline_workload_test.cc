#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "rueda/trace/recorder.h"
#include "timeline/make_workload.h"
#include "timeline/ready_times.h"

namespace rueda::timeline::workload_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr Nanos ms(double value) { return static_cast<Nanos>(value * 1e6); }

// A job that never ran. Its step: 2 ms of the optimizer, 10 of forward, then `late` is ready 4 ms later and
// `early` (which is larger) 1 ms before it; the program waits, and its optimizer goes on.
struct Plan {
  Rank ranks = 2;
  int64_t steps = 20;
  bool marks = true, details = true, waits = true, crosses = false;
  double transfer = 5;  // ms from the last tensor to its result
  std::function<double(Rank, int64_t)> stretch = [](Rank, int64_t) { return 1; };  // of computing
  std::function<void(trace::Recorder&, Nanos now, int64_t step)> more = {};  // before the mark of the step
};

class WorkloadTest : public testing::Test {
 protected:
  WorkloadTest() {
    std::string pattern = testing::TempDir() + "rueda_workload_XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~WorkloadTest() override { std::filesystem::remove_all(dir_); }

  struct Tensor {
    const char* name;
    const char* dtype;
    const char* shape;
    Nanos submitted;
    Collective what = Collective::kAllreduce;
    int32_t process_set = 0;
    bool is_waited_for = false;
  };
  static void record(trace::Recorder& out, const Tensor& tensor, Nanos ended, bool details = true) {
    static uint64_t order = 0;
    const CallTrace call{.what = tensor.what,
                         .is_waited_for = tensor.is_waited_for,
                         .process_set = tensor.process_set,
                         .order = ++order,
                         .name = tensor.name,
                         .backend = "local",
                         .tensors = 1,
                         .submitted = tensor.submitted,
                         .ordered = tensor.submitted,
                         .started = tensor.submitted,
                         .transfer_began = tensor.submitted,
                         .ended = ended};
    out.record(call);
    if (details)
      out.record(TensorTrace{.name = tensor.name,
                             .dtype = tensor.dtype,
                             .shape = tensor.shape,
                             .operation = operation_code(tensor.what, ReduceOp::kSum),
                             .submitted = tensor.submitted,
                             .call = call_tag(0, call.order)});
  }

  Result<MadeWorkload> make(const Plan& plan) const {
    std::vector<std::string> paths;
    for (Rank rank = 0; rank < plan.ranks; ++rank) {
      paths.push_back(trace::record_path(dir_ + "/t.json", rank));
      write(plan, rank, paths.back());
    }
    Names names;
    const Result<Job> job = read_job(paths, -1, names);
    if (!job.is_ok()) return job.status();
    return make_workload(job.value(), "made", names);
  }

 private:
  static void write(const Plan& plan, Rank rank, const std::string& path) {
    trace::Recorder out;
    out.begin_epoch({.epoch = 1,
                     .rank = rank,
                     .size = plan.ranks,
                     .job = 7,
                     .began = kSecond,
                     .host = "a",
                     .host_key = "a|1",
                     .command = "python train.py"});
    ASSERT_TRUE(out.start_file(path, false).is_ok());
    const auto mark = [&](Nanos when) {
      if (plan.marks) out.record(TraceSpan{.kind = SpanKind::kStep, .begin = when, .end = when});
    };
    Nanos at = kSecond;
    record(out, {"weights", "float32", "[2, 3]", at - ms(2), Collective::kBroadcast}, at - ms(1),
           plan.details);
    mark(at);
    for (int64_t step = 0; step < plan.steps; ++step) {
      const double one = plan.stretch(rank, step);
      // The first third of what the optimizer computes is over when the mark comes.
      const Nanos early = at + ms((plan.crosses ? 13 : 12.3) * one),
                  late = at + ms((plan.crosses ? 16 : 15.3) * one);
      const Nanos done = late + ms(plan.transfer);
      record(out, {"early", "float32", "[2, 3]", early}, done, plan.details);
      record(out, {"late", "float16", "[5]", late}, done, plan.details);
      if (plan.crosses) {
        at = late + ms(0.1);
        mark(at);
        continue;
      }
      if (plan.waits) out.record(TraceSpan{.kind = SpanKind::kWait, .begin = late, .end = done});
      at = done + (plan.waits ? ms(0.7 * one) : 0);
      if (plan.more) plan.more(out, at, step);
      mark(at);
    }
  }

 protected:
  std::string dir_;
};

TEST_F(WorkloadTest, has_names_sizes_and_times_of_a_step_without_its_waits) {
  const Result<MadeWorkload> made = make({});
  ASSERT_TRUE(made.is_ok()) << made.status().why;
  const workload::Model& model = made.value().model;
  EXPECT_EQ(model.name, "made");
  EXPECT_EQ(model.world, 2);
  ASSERT_EQ(model.parameters.size(), 2U);
  EXPECT_EQ(model.parameters[0].name, "early");
  EXPECT_EQ(model.parameters[0].count, 6);
  EXPECT_EQ(model.parameters[1].name, "late");
  EXPECT_EQ(model.parameters[1].count, 3);  // 10 bytes, as float32
  // A step begins when the gradients are there: 0.7 ms before the mark.
  EXPECT_THAT(model.ready_ms(), Pointwise(DoubleNear(1e-6), {13.0, 16.0}));
  EXPECT_NEAR(model.compute_ms, 16, 1e-6);
  EXPECT_EQ(model.spread->step, 0);
  EXPECT_EQ(model.spread->rank, 0);
  EXPECT_THAT(model.source, HasSubstr("16 steps of 2 ranks of job 00000007: python train.py"));
  EXPECT_TRUE(made.value().remarks.empty());
  EXPECT_TRUE(workload::parse_model(workload::text_of(model), "F").is_ok());
}

TEST_F(WorkloadTest, is_the_same_whatever_the_transfers_take) {
  for (const double transfer : {0.5, 200.0})
    EXPECT_THAT(make({.transfer = transfer}).value().model.ready_ms(),
                Pointwise(DoubleNear(1e-6), {13.0, 16.0}));
}

TEST_F(WorkloadTest, says_how_much_computing_differs_between_steps_and_ranks) {
  Plan plan{.ranks = 3, .steps = 200};
  plan.stretch = [](Rank, int64_t step) { return step % 2 == 0 ? 0.9 : step == 77 ? 50 : 1.1; };
  EXPECT_NEAR(make(plan).value().model.spread->step, 0.1, 0.02);  // one long step changes nothing
  plan.stretch = [](Rank rank, int64_t) { return 1 + 0.1 * rank; };
  const workload::Model model = make(plan).value().model;
  EXPECT_NEAR(model.spread->rank, 0.1 / 1.1, 1e-6);
  EXPECT_EQ(model.spread->step, 0);
  EXPECT_NEAR(model.compute_ms, 1.1 * 16, 1e-6);
}

TEST_F(WorkloadTest, is_the_mean_of_two_ranks) {
  Plan plan;
  plan.stretch = [](Rank rank, int64_t) { return 1 + rank; };
  const workload::Model model = make(plan).value().model;
  EXPECT_NEAR(model.compute_ms, 1.5 * 16, 1e-6);
  EXPECT_THAT(model.ready_ms(), Pointwise(DoubleNear(1e-6), {1.5 * 13, 1.5 * 16}));
}

TEST_F(WorkloadTest, leaves_out_the_steps_that_warm_up) {
  Plan plan{.steps = 8};
  plan.stretch = [](Rank, int64_t step) { return step < 4 ? 10 : 1; };
  EXPECT_NEAR(make(plan).value().model.compute_ms, 16, 1e-6);
}

TEST_F(WorkloadTest, says_in_one_sentence_what_was_left_out) {
  Plan plan;
  plan.more = [](trace::Recorder& out, Nanos now, int64_t step) {
    record(out, {"met", "float32", "[1]", now, Collective::kBarrier}, now);
    record(out, {"of a set", "float32", "[1]", now, Collective::kAllreduce, 3}, now);
    record(out, {"loss", "float32", "[]", now, Collective::kAllreduce, 0, true}, now);
    if (step % 5 == 0) record(out, {"metric", "float32", "[1]", now}, now);
  };
  const Result<MadeWorkload> made = make(plan);
  ASSERT_TRUE(made.is_ok()) << made.status().why;
  EXPECT_THAT(made.value().model.parameters, testing::SizeIs(2));
  EXPECT_THAT(
      made.value().remarks,
      ElementsAre("Left out: 1 tensor of BARRIER, 1 tensor of a process set, 1 tensor in fewer than half "
                  "of the steps, 1 tensor that the program waits for at once."));
  EXPECT_THAT(made.value().model.source, HasSubstr("; left out: 1 tensor of BARRIER"));
}

TEST_F(WorkloadTest, has_the_other_collectives_of_a_step) {
  Plan plan;
  plan.more = [](trace::Recorder& out, Nanos now, int64_t) {
    record(out, {"gathered", "float32", "[6]", now, Collective::kAllgather, 0, true}, now);
    record(out, {"scattered", "float32", "[4]", now, Collective::kReducescatter}, now);
  };
  const Result<MadeWorkload> made = make(plan);
  ASSERT_TRUE(made.is_ok()) << made.status().why;
  const std::vector<workload::Exchange>& exchanges = made.value().model.exchanges;
  ASSERT_EQ(exchanges.size(), 2U);
  EXPECT_EQ(exchanges[0].name, "gathered");
  EXPECT_EQ(exchanges[0].what, Collective::kAllgather);
  EXPECT_EQ(exchanges[0].count, 3) << "each of two ranks gave half of the result";
  EXPECT_TRUE(exchanges[0].is_awaited);
  EXPECT_EQ(exchanges[1].what, Collective::kReducescatter);
  EXPECT_EQ(exchanges[1].count, 8);
  EXPECT_FALSE(exchanges[1].is_awaited);
  EXPECT_TRUE(made.value().remarks.empty());
}

TEST_F(WorkloadTest, begins_steps_with_the_marks_where_they_do_not_wait) {
  const Result<MadeWorkload> made = make({.crosses = true});
  ASSERT_TRUE(made.is_ok()) << made.status().why;
  EXPECT_THAT(made.value().model.ready_ms(), Pointwise(DoubleNear(1e-6), {13.0, 16.0}));
}

TEST_F(WorkloadTest, takes_a_program_that_does_not_say_when_it_waits_to_wait_for_its_last_tensor) {
  const Result<MadeWorkload> made = make({.waits = false});
  ASSERT_TRUE(made.is_ok()) << made.status().why;
  EXPECT_NEAR(made.value().model.compute_ms, 15.3, 1e-6);
  EXPECT_THAT(made.value().remarks, ElementsAre(HasSubstr("does not say when it waits")));
}

TEST_F(WorkloadTest, says_how_to_record_what_is_missing) {
  EXPECT_THAT(make({.marks = false}).status().why, HasSubstr("let the program call hvd.mark_step()"));
  EXPECT_THAT(make({.details = false}).status().why, HasSubstr("RUEDA_TIMELINE=t.json"));
  EXPECT_THAT(make({.steps = 6}).status().why, HasSubstr("has 7 marks of steps"));
  EXPECT_TRUE(make({.steps = 7}).is_ok());
}

TEST(BytesOf, a_result_are_its_elements_times_its_type) {
  EXPECT_EQ(bytes_of("float32 [2, 3]"), 24);
  EXPECT_EQ(bytes_of("bfloat16 [7]"), 14);
  EXPECT_EQ(bytes_of("float64 []"), 8);
  for (const char* text : {"", "float32", "float32 [0]", "float32 [-1]", "float32 [x]", "float31 [1]",
                           "float32 [9223372036854775807, 2]", "float64 [9223372036854775807]"})
    EXPECT_EQ(bytes_of(text), 0) << text;
}

TEST(WithoutNumber, are_names_that_the_program_did_not_give) {
  EXPECT_EQ(without_number("allreduce.noname.17"), "allreduce.noname.#");
  EXPECT_EQ(without_number("grouped_allreduce.noname.17_1of2"), "grouped_allreduce.noname.#_1of2");
  EXPECT_EQ(without_number("default/all_reduce 17"), "default/all_reduce #");
  EXPECT_EQ(without_number("default/all_reduce 17/3"), "default/all_reduce #/3");
  for (const char* name :
       {"allreduce.layer.17", "allreduce.noname.x", "allreduce.noname.", "a b", "a 1b", ""})
    EXPECT_EQ(without_number(name), name);
}

TEST(ReadyTimes, of_unnamed_tensors_are_told_apart_by_their_order_in_a_step) {
  StepEvents events;
  std::vector<std::string> names;
  for (int i = 0; i < 30; ++i) names.push_back("allreduce.noname." + std::to_string(i));
  for (int step = 0; step < 10; ++step) {
    events.marks.push_back({ms(100.0 * step), false});
    for (int i = 0; i < 3; ++i) {
      const Nanos when = ms(100.0 * step + 10 * (i + 1));
      events.submissions.push_back(
          {.name = names[static_cast<size_t>(3 * step + i)], .bytes = 4 + i, .when = when, .ended = when});
    }
  }
  const ReadyTimes times = ready_times_of(events, true);
  EXPECT_EQ(times.tensors.size(), 3U);
  EXPECT_EQ(times.tensors.at("allreduce.noname.#").ready_ms, std::vector<double>(5, 10));
  EXPECT_EQ(times.tensors.at("allreduce.noname.# (3)").ready_ms, std::vector<double>(5, 30));
  EXPECT_EQ(times.tensors.at("allreduce.noname.# (3)").bytes, 6);
}

TEST(ReadyTimes, of_steps_in_which_records_are_missing_are_left_out) {
  StepEvents events;
  for (int step = 0; step < 10; ++step) {
    events.marks.push_back({ms(100.0 * step), step == 7});
    events.submissions.push_back({.name = "a",
                                  .bytes = 4,
                                  .when = ms(100.0 * step + (step == 6 ? 90 : 10)),
                                  .ended = ms(100.0 * step + 91)});
  }
  const ReadyTimes times = ready_times_of(events, true);
  EXPECT_EQ(times.steps, 6);  // not the first, nor those before and after the gap
  EXPECT_EQ(times.computed_ms.size(), 3U);
  EXPECT_THAT(times.tensors.at("a").ready_ms, ElementsAre(10, 10, 10));
}

TEST(ReadyTimes, of_a_name_that_comes_twice_in_a_step_are_two) {
  StepEvents events;
  for (int step = 0; step < 10; ++step) {
    events.marks.push_back({ms(100.0 * step), false});
    for (const double when : {10.0, 30.0})
      events.submissions.push_back(
          {.name = "a", .bytes = 4, .when = ms(100.0 * step + when), .ended = ms(100.0 * step + when)});
  }
  const ReadyTimes times = ready_times_of(events, true);
  EXPECT_EQ(times.tensors.at("a").ready_ms.front(), 10);
  EXPECT_EQ(times.tensors.at("a (2)").ready_ms.front(), 30);
}

}  // namespace
}  // namespace rueda::timeline::workload_test
