// Tensors that lie apart are laid out for one call: by Packing alone, and through the native backend.
#include "rueda/backend/packing.h"

#include <gtest/gtest.h>

#include <numeric>

#include "backend_fake_mesh.h"

namespace rueda::backend_test::backend_packing_test {
namespace {

using backend::Activity;
using backend::Call;
using backend::Packing;
using backend::Segment;
using Floats = std::vector<float>;

schedule::Spec spec_of(Collective what) {
  schedule::Spec spec;
  spec.what = what;
  return spec;
}

struct Activities final : backend::ActivitySink {
  std::vector<Activity> seen;
  void begin(Activity activity) override { seen.push_back(activity); }
};

const Group kTwo{.id = 0, .epoch = 1, .members = {0, 1}, .me = 1};

TEST(Packing, one_tensor_goes_by_its_own_memory) {
  Floats input{1, 2, 3}, output(3);
  const std::vector<Segment> segments{{.input = input.data(), .output = output.data(), .count = 3}};
  Activities activities;
  const Call call{.group = &kTwo,
                  .spec = spec_of(Collective::kAllreduce),
                  .segments = segments,
                  .activities = &activities};
  Packing packing;
  ASSERT_TRUE(packing.pack(call, false).is_ok());
  EXPECT_EQ(static_cast<const void*>(packing.input()), input.data());
  EXPECT_EQ(static_cast<void*>(packing.output()), output.data());
  packing.unpack(call);
  EXPECT_TRUE(activities.seen.empty());
}

TEST(Packing, a_copy_that_is_asked_for_leaves_the_tensor_alone_until_it_is_unpacked) {
  Floats values{1, 2, 3};
  const std::vector<Segment> segments{{.input = values.data(), .output = values.data(), .count = 3}};
  const Call call{.group = &kTwo, .spec = spec_of(Collective::kAllreduce), .segments = segments};
  Packing packing;
  ASSERT_TRUE(packing.pack(call, true).is_ok());
  auto* packed = reinterpret_cast<float*>(packing.output());
  EXPECT_EQ(Floats(packed, packed + 3), values);
  packed[0] = 7;
  EXPECT_EQ(values[0], 1.0f);
  packing.unpack(call);
  EXPECT_EQ(values, (Floats{7, 2, 3}));
}

TEST(Packing, an_allreduce_prescales_and_a_rank_that_has_joined_gives_identity_elements) {
  Floats one{1, 2};
  const std::vector<Segment> segments{{.input = one.data(), .output = one.data(), .count = 2}, {.count = 1}};
  schedule::Spec spec = spec_of(Collective::kAllreduce);
  spec.op = ReduceOp::kProduct;
  Activities activities;
  const Call call{
      .group = &kTwo, .spec = spec, .segments = segments, .prescale = 0.5, .activities = &activities};
  Packing packing;
  ASSERT_TRUE(packing.pack(call, false).is_ok());
  const auto* packed = reinterpret_cast<const float*>(packing.input());
  EXPECT_EQ(Floats(packed, packed + 3), (Floats{0.5f, 1, 1}));
  std::iota(reinterpret_cast<float*>(packing.output()), reinterpret_cast<float*>(packing.output()) + 3, 5.0f);
  packing.unpack(call);
  EXPECT_EQ(one, (Floats{5, 6}));
  EXPECT_EQ(activities.seen, (std::vector<Activity>{Activity::kPack, Activity::kUnpack}));
}

TEST(Packing, an_allgather_comes_back_source_major) {
  Floats a{1, 2}, b{3}, all_a(5), all_b(1);  // member 0 gives 3 of a and none of b
  const std::vector<int64_t> counts_a{3, 2}, counts_b{0, 1};
  const std::vector<Segment> segments{
      {.input = a.data(), .output = all_a.data(), .count = 2, .counts = counts_a},
      {.input = b.data(), .output = all_b.data(), .count = 1, .counts = counts_b}};
  const Call call{.group = &kTwo, .spec = spec_of(Collective::kAllgather), .segments = segments};
  Packing packing;
  ASSERT_TRUE(packing.pack(call, false).is_ok());
  const auto* packed = reinterpret_cast<const float*>(packing.input());
  EXPECT_EQ(Floats(packed, packed + 3), (Floats{1, 2, 3}));
  const Floats gathered{10, 11, 12, 1, 2, 3};
  std::copy(gathered.begin(), gathered.end(), reinterpret_cast<float*>(packing.output()));
  packing.unpack(call);
  EXPECT_EQ(all_a, (Floats{10, 11, 12, 1, 2}));
  EXPECT_EQ(all_b, (Floats{3}));
}

TEST(Packing, a_reducescatter_leaves_destination_major) {
  Floats a{1, 2, 3}, b{4, 5}, mine_a(1), mine_b(1);
  const std::vector<int64_t> counts_a{2, 1}, counts_b{1, 1};
  const std::vector<Segment> segments{
      {.input = a.data(), .output = mine_a.data(), .count = 3, .counts = counts_a},
      {.input = b.data(), .output = mine_b.data(), .count = 2, .counts = counts_b}};
  const Call call{.group = &kTwo, .spec = spec_of(Collective::kReducescatter), .segments = segments};
  Packing packing;
  ASSERT_TRUE(packing.pack(call, false).is_ok());
  const auto* packed = reinterpret_cast<const float*>(packing.input());
  EXPECT_EQ(Floats(packed, packed + 5), (Floats{1, 2, 4, 3, 5}));
  reinterpret_cast<float*>(packing.output())[0] = 30;
  reinterpret_cast<float*>(packing.output())[1] = 50;
  packing.unpack(call);
  EXPECT_EQ(mine_a, Floats{30});
  EXPECT_EQ(mine_b, Floats{50});
}

TEST(Packing, an_alltoall_knows_its_two_sides) {
  const std::vector<int64_t> counts{1, 2, 3, 4};  // [source * 2 + destination]
  const Segment segment{.count = 7, .counts = counts};
  EXPECT_EQ(backend::elements_given(Collective::kAlltoall, segment, 1, 2), 7);
  EXPECT_EQ(backend::elements_taken(Collective::kAlltoall, segment, 1, 2), 6);
}

// The numbers are the same whether the tensors travel together or alone.
TEST(Packing, the_native_backend_reduces_tensors_where_they_lie) {
  FakeMesh mesh(schedule::Topology::regular(2, 2), WireKind::kBuffered, 3);
  std::vector<Group> groups;
  std::vector<std::vector<Floats>> tensors(4);
  for (Rank me = 0; me < 4; ++me) groups.push_back(mesh.world(me));
  for (Rank me = 0; me < 4; ++me) {
    const auto rank = static_cast<size_t>(me);
    for (const size_t count : {3, 1000, 17}) tensors[rank].emplace_back(count, static_cast<float>(me + 1));
    TestCall call{.id = 1, .group = &groups[rank], .spec = spec_of(Collective::kAllreduce), .prescale = 2.0};
    call.spec.count = 1020;
    for (Floats& tensor : tensors[rank])
      call.segments.push_back(
          {.input = tensor.data(), .output = tensor.data(), .count = static_cast<int64_t>(tensor.size())});
    if (me == 3) call.segments[1] = {.count = 1000};  // has joined
    mesh.backend(me).start(call);
  }
  ASSERT_TRUE(mesh.run());
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(tensors[rank][0], Floats(3, 20));
    EXPECT_EQ(tensors[rank][1], Floats(1000, rank == 3 ? 4 : 12));
    EXPECT_EQ(tensors[rank][2], Floats(17, 20));
  }
}

}  // namespace
}  // namespace rueda::backend_test::backend_packing_test
