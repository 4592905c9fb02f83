#include "rueda/trace/tensor_bars.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::trace::tensor_bars_test {
namespace {

using testing::ElementsAre;

struct Lines final : BarSink {
  void begin(std::string_view tensor, std::string_view name, Nanos when) override {
    lines.push_back("B " + std::string(tensor) + " " + std::string(name) + " @" + std::to_string(when));
  }
  void end(std::string_view tensor, Nanos when, std::string_view result) override {
    lines.push_back("E " + std::string(tensor) + " @" + std::to_string(when) +
                    (result.empty() ? "" : " " + std::string(result)));
  }
  void ready(std::string_view tensor, Rank member, Nanos when) override {
    lines.push_back("X " + std::string(tensor) + " " + std::to_string(member) + " @" + std::to_string(when));
  }
  std::vector<std::string> take() { return std::exchange(lines, {}); }
  std::vector<std::string> lines;
};

Call call_of(Collective what) {
  Call call;
  call.what = what;
  call.order = 3;
  call.backend = "local";
  call.ordered = 20;
  call.started = 30;
  call.transfer_began = 30;
  call.ended = 40;
  return call;
}

TensorRecord tensor_of(std::string_view name, OperationCode code, Nanos submitted) {
  TensorRecord tensor;
  tensor.name = name;
  tensor.operation = code;
  tensor.submitted = submitted;
  tensor.call = call_tag(0, 3);
  return tensor;
}

Span ready(std::string_view name, OperationCode code, Rank member, Nanos when) {
  Span span;
  span.kind = SpanKind::kReady;
  span.text = name;
  span.value = code;
  span.peer = member;
  span.begin = span.end = when;
  return span;
}

TEST(TensorBars, a_negotiation_begins_with_the_first_rank_and_ends_with_the_order) {
  TensorBars bars;
  Lines out;
  const OperationCode adasum = operation_code(Collective::kAllreduce, ReduceOp::kAdasum);
  bars.add(ready("a", adasum, 1, 5), out);
  EXPECT_THAT(out.take(), ElementsAre("B a NEGOTIATE_ADASUM @5", "X a 1 @5")) << "at once: it may hang";
  bars.add(ready("a", adasum, 0, 7), out);
  bars.add(call_of(Collective::kAllreduce));
  TensorRecord tensor = tensor_of("a", adasum, 6);
  tensor.result = "float32 [2]";
  bars.add(tensor, out);
  EXPECT_THAT(out.take(), ElementsAre("X a 0 @7", "E a @20", "B a ADASUM @20", "B a QUEUE @20", "E a @30",
                                      "B a LOCAL_ALLREDUCE @30", "E a @40", "E a @40 float32 [2]"));
}

TEST(TensorBars, on_other_ranks_a_tensor_waits_from_its_submission_and_in_a_plan_for_its_bucket) {
  TensorBars bars;
  Lines out;
  Call call = call_of(Collective::kBroadcast);
  bars.add(call);
  const OperationCode code = operation_code(Collective::kBroadcast, ReduceOp::kSum);
  bars.add(tensor_of("b", code, 10), out);
  EXPECT_THAT(out.take(),
              ElementsAre("B b NEGOTIATE_BROADCAST @10", "E b @20", "B b BROADCAST @20", "B b QUEUE @20",
                          "E b @30", "B b LOCAL_BCAST @30", "E b @40", "E b @40"));
  call.is_planned = true;
  call.transfer_began = 32;
  call.unpack_began = 36;
  bars.add(call);
  bars.add(tensor_of("b", code, 10), out);
  EXPECT_THAT(out.take(),
              ElementsAre("B b WAIT_FOR_BUCKET @10", "E b @20", "B b BROADCAST @20", "B b QUEUE @20",
                          "E b @30", "B b MEMCPY_IN_FUSION_BUFFER @30", "E b @32", "B b LOCAL_BCAST @32",
                          "E b @36", "B b MEMCPY_OUT_FUSION_BUFFER @36", "E b @40", "E b @40"));
}

TEST(TensorBars, barriers_have_no_bar_of_their_own_and_joins_and_those_who_joined_wait_for_nothing) {
  TensorBars bars;
  Lines out;
  const OperationCode barrier = operation_code(Collective::kBarrier, ReduceOp::kSum);
  bars.add(ready("b", barrier, 1, 5), out);
  bars.add(call_of(Collective::kBarrier));
  bars.add(tensor_of("b", barrier, 6), out);
  EXPECT_THAT(out.take(), ElementsAre("B b NEGOTIATE_BARRIER @5", "E b @20"));
  bars.add(call_of(Collective::kJoin));
  bars.add(tensor_of("j", operation_code(Collective::kJoin, ReduceOp::kSum), 6), out);
  EXPECT_TRUE(out.take().empty());
  bars.add(call_of(Collective::kAllreduce));
  bars.add(tensor_of("a", 0, 0), out);
  EXPECT_EQ(out.take().front(), "B a ALLREDUCE @20");
}

TEST(TensorBars, what_fails_is_an_error_and_what_is_missing_is_not_drawn) {
  TensorBars bars;
  Lines out;
  bars.add(ready("a", 0, 1, 5), out);
  bars.add(ready("open", 0, 1, 6), out);
  out.take();
  TensorRecord failed = tensor_of("a", 0, 4);
  failed.failed = 9;
  bars.add(failed, out);
  EXPECT_THAT(out.take(), ElementsAre("E a @9", "B a ERROR @9", "E a @9"));
  bars.add(tensor_of("a", 0, 4), out);
  EXPECT_TRUE(out.take().empty()) << "its call is missing";
  bars.close(out);
  EXPECT_THAT(out.take(), ElementsAre("E open @6"));
  bars.close(out);
  EXPECT_TRUE(out.take().empty());
}

}  // namespace
}  // namespace rueda::trace::tensor_bars_test
