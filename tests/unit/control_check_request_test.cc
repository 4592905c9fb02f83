#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "control_fixture.h"
#include "rueda/base/limits.h"
#include "rueda/control/check_request.h"
#include "rueda/control/respond.h"

namespace rueda::control::check_request_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::vector<Rank> kWorld = {0, 1, 2};

Status check(const TensorRequest& request, const std::vector<Rank>* members = &kWorld, Rank me = 0) {
  return check_request(request, members, me, 3);
}

void expect_refused(const Status& status, const std::string& text, Code code = Code::kInvalidArgument) {
  EXPECT_EQ(status.code, code);
  EXPECT_THAT(status.why, StartsWith(text));
}

TEST(CheckRequest, an_unknown_set_and_a_non_member_are_refused_in_the_contracts_words) {
  const std::vector<Rank> others = {1, 2};
  const auto in_set = [](Collective what) {
    TensorRequest request = collective(what, "t");
    request.process_set = 7;
    return request;
  };
  for (const auto& [what, title] : {std::pair(Collective::kAllreduce, "Allreduce"),
                                    {Collective::kAllgather, "Allgather"},
                                    {Collective::kBroadcast, "Broadcast"},
                                    {Collective::kAlltoall, "Alltoall"},
                                    {Collective::kBarrier, "Barrier"}}) {
    expect_refused(check(in_set(what), nullptr),
                   std::string(title) + ": Process set provided does not exist, or has not been registered.");
    if (what != Collective::kBroadcast)
      expect_refused(check(in_set(what), &others),
                     std::string(title) + ": Rank 0 is not a member of the provided process set.");
  }
  expect_refused(check(in_set(Collective::kReducescatter), nullptr),
                 "Invalid process set id for this rank: 7");
  expect_refused(check(in_set(Collective::kReducescatter), &others),
                 "Invalid process set id for this rank: 7");
  expect_refused(check(in_set(Collective::kBroadcast), &others),
                 "broadcast received invalid root rank 0 for provided process set");
}

TEST(CheckRequest, a_wire_type_is_for_sums_and_averages_of_float32_in_host_memory) {
  const auto wired = [](auto change) {
    TensorRequest request = collective(Collective::kAllreduce, "t");
    request.wire = Wire::kInt8;
    request.shape = {2000};
    change(request);
    return request;
  };
  EXPECT_TRUE(check(wired([](TensorRequest& r) { r.op = ReduceOp::kAverage; })).is_ok());
  const std::string begin = "Tensor t asks for the wire type int8, but wire types ";
  const auto refused = [&](const std::string& why, auto change) {
    expect_refused(check(wired(change)), begin + why, Code::kUnsupported);
  };
  refused("are for float32, but it is int32", [](TensorRequest& r) { r.dtype = DType::kInt32; });
  refused("are for Sum and Average, but it asks for ", [](TensorRequest& r) { r.op = ReduceOp::kMin; });
  refused("do not go with Adasum", [](TensorRequest& r) { r.op = ReduceOp::kAdasum; });
  refused("are for host memory", [](TensorRequest& r) { r.memory = MemoryKind::kDevice; });
  refused("are for allreduces", [](TensorRequest& r) { r.what = Collective::kReducescatter; });
}

TEST(CheckRequest, a_wire_type_has_no_effect_on_small_tensors_and_on_what_it_is_not_for) {
  TensorRequest request = collective(Collective::kAllreduce, "t");
  request.shape = {32, 32};
  EXPECT_EQ(effective_wire(request, Wire::kInt8, false), Wire::kInt8);
  request.shape = {1023};
  EXPECT_EQ(effective_wire(request, Wire::kInt8, false), Wire::kExact);
  request.shape = {2000};
  request.op = ReduceOp::kMax;
  EXPECT_EQ(effective_wire(request, Wire::kInt8, false), Wire::kExact);
}

TEST(CheckRequest, on_one_host_small_tensors_have_the_wire_type_of_those_whose_bucket_they_share) {
  TensorRequest request = collective(Collective::kAllreduce, "t");
  request.shape = {3};
  EXPECT_EQ(effective_wire(request, Wire::kInt8, true), Wire::kInt8);
  EXPECT_EQ(effective_wire(request, Wire::kExact, true), Wire::kExact);
  request.op = ReduceOp::kMax;
  EXPECT_EQ(effective_wire(request, Wire::kInt8, true), Wire::kExact);
}

TEST(CheckRequest, a_root_outside_the_set_is_refused) {
  const std::vector<Rank> members = {0, 2};
  TensorRequest request = collective(Collective::kBroadcast, "t");
  for (const Rank root : {-1, 1, 3}) {
    request.root = root;
    expect_refused(check(request, &members), "broadcast received invalid root rank " + std::to_string(root) +
                                                 " for provided process set");
  }
  request.root = 2;
  EXPECT_TRUE(check(request, &members).is_ok());
}

TEST(CheckRequest, alltoall_splits) {
  TensorRequest request = collective(Collective::kAlltoall, "t", {4});
  expect_refused(
      check(request),
      "splits not provided, but first dimension of tensor is not an even multiple of the number of workers.");
  request.splits = {1, 1};
  expect_refused(check(request), "Number of entries in splits does not equal number of workers.");
  request.splits = {2, 2, 1};
  expect_refused(check(request), "Sum of splits entries is greater than the first dimension of tensor.");
  request.splits = {4, -1, 1};
  expect_refused(check(request), "Entries in splits must not be negative.");
  request.splits = {0, 3, 0};
  EXPECT_TRUE(check(request).is_ok());
  EXPECT_TRUE(check(collective(Collective::kAlltoall, "t", {0})).is_ok());
}

TEST(CheckRequest, an_alltoall_whose_answer_would_exceed_a_message_is_refused_in_a_sentence) {
  std::vector<Rank> members(2'895);
  std::iota(members.begin(), members.end(), 0);
  TensorRequest request = collective(Collective::kAlltoall, "t");
  request.shape = {0};
  EXPECT_TRUE(check(request, &members).is_ok());
  Bucket bucket;
  bucket.entries.push_back({.name = std::string(kMaxNameBytes, 'n'),
                            .shape = std::vector<int64_t>(kMaxDims, 1),
                            .rows = std::vector<int64_t>(members.size() * members.size())});
  EXPECT_LE(encode(std::vector<Response>{bucket}).size(), kMaxMessageBytes);
  members.push_back(2'895);
  const Status status = check(request, &members);
  expect_refused(status, "Alltoall of tensor t is refused: 2896 ranks", Code::kUnsupported);
  EXPECT_THAT(status.why, HasSubstr("smaller process sets"));
}

TEST(CheckRequest, reducescatter_takes_average_and_sum_of_tensors_with_rows) {
  expect_refused(check(collective(Collective::kReducescatter, "t", {})),
                 "Reducescatter does not support scalar inputs");
  TensorRequest request = collective(Collective::kReducescatter, "t");
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct, ReduceOp::kAdasum}) {
    request.op = op;
    expect_refused(check(request), "Reducescatter currently only supports AVERAGE and SUM.",
                   Code::kUnsupported);
  }
  request.op = ReduceOp::kAverage;
  EXPECT_TRUE(check(request).is_ok());
}

TEST(CheckRequest, ops_without_a_name_and_adasum_of_integers_are_unsupported) {
  TensorRequest request = allreduce("t");
  request.op = static_cast<ReduceOp>(9);
  expect_refused(check(request), "Reduction op type not supported.", Code::kUnsupported);
  request = allreduce("t", {4}, DType::kInt32);
  EXPECT_TRUE(check(request).is_ok());
  request.op = ReduceOp::kAdasum;
  expect_refused(check(request), "Adasum needs a floating-point tensor", Code::kUnsupported);
}

TEST(CheckRequest, names_and_shapes_are_bounded) {
  expect_refused(check(allreduce("")), "An operation without a name");
  EXPECT_EQ(check(allreduce(std::string(5000, 'x'))).code, Code::kInvalidArgument);
  EXPECT_EQ(check(allreduce("t", std::vector<int64_t>(65, 1))).code, Code::kInvalidArgument);
  EXPECT_EQ(check(allreduce("t", {2, -1})).code, Code::kInvalidArgument);
  EXPECT_EQ(check(allreduce("t", {INT64_MAX, 8})).code, Code::kInvalidArgument);
  EXPECT_TRUE(check(allreduce("t", {INT64_MAX, 0})).is_ok());
}

TEST(ReducescatterRows, add_up_and_differ_by_at_most_one) {
  for (const int64_t rows : {0, 1, 5, 7, 12})
    for (const Rank n : {1, 2, 3, 7}) {
      int64_t sum = 0;
      for (Rank r = 0; r < n; ++r) {
        sum += reducescatter_rows(rows, n, r);
        EXPECT_EQ(reducescatter_rows(rows, n, r), rows / n + (r < rows % n ? 1 : 0));
      }
      EXPECT_EQ(sum, rows);
    }
}

}  // namespace
}  // namespace rueda::control::check_request_test
