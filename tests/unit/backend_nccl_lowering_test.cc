#include "rueda/backend/nccl/lowering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "rueda/backend/nccl/host_sync.h"

namespace rueda::nccl::backend_nccl_lowering_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::array<std::byte, 4096> in, out;

schedule::Spec spec_of(Collective what, DType dtype = DType::kFloat32) {
  return {.what = what, .dtype = dtype, .counts = {}, .root = 1, .scale = {}, .segment_counts = {}};
}

std::vector<Step> steps(const schedule::Spec& spec, std::vector<int64_t> counts, Rank me, int64_t count = 8) {
  const DeviceRun run{.input = in.data(), .output = out.data(), .count = count, .counts = counts};
  return steps_of(spec, std::span(&run, 1), me, 3);
}

TEST(NcclLowering, reductions_count_elements_and_the_rest_bytes) {
  EXPECT_THAT(steps(spec_of(Collective::kAllreduce, DType::kBfloat16), {}, 0),
              ElementsAre(Step{Function::kAllReduce, in.data(), out.data(), 8, kBfloat16, kSum, 0}));
  EXPECT_THAT(steps(spec_of(Collective::kBroadcast, DType::kBool), {}, 0),
              ElementsAre(Step{Function::kBroadcast, in.data(), out.data(), 8, kUint8, kSum, 1}));
  EXPECT_THAT(steps(spec_of(Collective::kAllgather), {5, 5, 5}, 0),
              ElementsAre(Step{Function::kAllGather, in.data(), out.data(), 20, kUint8, kSum, 0}));
  EXPECT_THAT(steps(spec_of(Collective::kReducescatter), {5, 5, 5}, 0),
              ElementsAre(Step{Function::kReduceScatter, in.data(), out.data(), 5, kFloat32, kSum, 0}));
}

TEST(NcclLowering, an_uneven_allgather_is_a_broadcast_from_each_member_that_has_something) {
  EXPECT_THAT(steps(spec_of(Collective::kAllgather), {2, 0, 3}, 2),
              ElementsAre(Step{Function::kBroadcast, out.data(), out.data(), 8, kUint8, kSum, 0},
                          Step{Function::kBroadcast, in.data(), out.data() + 8, 12, kUint8, kSum, 2}));
}

TEST(NcclLowering, an_uneven_reducescatter_is_a_reduction_to_each_member_that_gets_something) {
  EXPECT_THAT(steps(spec_of(Collective::kReducescatter), {2, 0, 3}, 2),
              ElementsAre(Step{Function::kReduce, in.data(), nullptr, 2, kFloat32, kSum, 0},
                          Step{Function::kReduce, in.data() + 8, out.data(), 3, kFloat32, kSum, 2}));
}

TEST(NcclLowering, an_alltoall_sends_and_receives_what_is_not_empty) {
  const std::vector<int64_t> counts = {1, 2, 3, 0, 4, 5, 6, 0, 7};  // [source * 3 + destination]
  EXPECT_THAT(steps(spec_of(Collective::kAlltoall), counts, 1),
              ElementsAre(Step{Function::kRecv, nullptr, out.data(), 8, kUint8, kSum, 0},
                          Step{Function::kSend, in.data(), nullptr, 16, kUint8, kSum, 1},
                          Step{Function::kRecv, nullptr, out.data() + 8, 16, kUint8, kSum, 1},
                          Step{Function::kSend, in.data() + 16, nullptr, 20, kUint8, kSum, 2}));
}

TEST(NcclLowering, calls_without_elements_have_no_steps) {
  EXPECT_THAT(steps(spec_of(Collective::kAllreduce), {}, 0, 0), IsEmpty());
  EXPECT_THAT(steps(spec_of(Collective::kReducescatter), {0, 0, 0}, 0), IsEmpty());
}

TEST(NcclLowering, averages_are_divided_once_at_the_end_except_those_of_float16) {
  schedule::Spec spec = spec_of(Collective::kAllreduce);
  spec.scale = {.factor = 0.5, .divisor = 3};
  EXPECT_EQ(scaling_of(spec, 2).before, (Scale{.factor = 2}));
  EXPECT_EQ(scaling_of(spec, 2).after, spec.scale);
  spec.dtype = DType::kFloat16;
  EXPECT_EQ(scaling_of(spec, 2).before, (Scale{.factor = 2, .divisor = 3}));
  EXPECT_EQ(scaling_of(spec, 2).after, (Scale{.factor = 0.5}));
}

TEST(NcclLowering, nccl_adds_what_it_has_a_type_for_and_moves_everything) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const bool is_added = dtype != DType::kBool && dtype != DType::kInt16 && dtype != DType::kUint16;
    EXPECT_EQ(runs(spec_of(Collective::kAllreduce, dtype)), is_added) << name_of(dtype);
    EXPECT_TRUE(runs(spec_of(Collective::kAlltoall, dtype)));
  }
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kInt32}) {
    schedule::Spec adasum = spec_of(Collective::kAllreduce, dtype);
    adasum.op = ReduceOp::kAdasum;
    EXPECT_EQ(runs(adasum), dtype != DType::kInt32);
  }
  EXPECT_FALSE(runs(spec_of(Collective::kBarrier)));
}

TEST(NcclMemberInfo, the_first_member_that_cannot_go_on_is_named_with_its_reason) {
  const Group group{.id = 3, .members = {2, 5, 7}, .me = 0};
  std::vector<MemberInfo> members(3);
  EXPECT_EQ(refusal_of(group, members), "") << "NCCL allows them to share a GPU";
  members[0].set_gpu("a");
  members[1].set_gpu("b");
  EXPECT_EQ(refusal_of(group, members), "");
  members[2].set_gpu("a");
  EXPECT_THAT(refusal_of(group, members), HasSubstr("rank 2 and rank 7 use the same GPU"));
  members[1].set_why_not(std::string(1000, 'x'));
  EXPECT_THAT(refusal_of(group, members), AllOf(HasSubstr("rank 5 cannot use NCCL: xxx"), SizeIs(24 + 383)));
}

TEST(NcclMemberInfo, the_member_with_the_least_memory_decides_how_much_all_pack) {
  std::vector<MemberInfo> members(3);
  EXPECT_EQ(pack_bytes_of(members), 0U);
  for (size_t i = 0; i < 3; ++i) members[i].pack_bytes = static_cast<int64_t>(30 - 10 * i);
  EXPECT_EQ(pack_bytes_of(members), 10U);
}

TEST(NcclPacking, takes_as_many_tensors_as_fit_with_their_gaps_and_at_least_one) {
  const std::vector<backend::Segment> tensors(5, {.count = 10});  // 40 bytes, 128 with the gap
  EXPECT_EQ(packed_at_once(DType::kFloat32, tensors, 640), 5U);
  EXPECT_EQ(packed_at_once(DType::kFloat32, tensors, 639), 4U);
  EXPECT_EQ(packed_at_once(DType::kFloat32, tensors, 0), 1U);
}

}  // namespace
}  // namespace rueda::nccl::backend_nccl_lowering_test
