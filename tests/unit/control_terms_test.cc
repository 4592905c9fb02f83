#include "rueda/control/terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "control_fixture.h"
#include "rueda/control/mismatch.h"

namespace rueda::control::terms_test {
namespace {

// One change of each field.
std::vector<void (*)(Terms&)> every_change() {
  return {
      [](Terms& t) { t.what = Collective::kAllgather; },
      [](Terms& t) { t.dtype = DType::kInt32; },
      [](Terms& t) { t.op = ReduceOp::kMax; },
      [](Terms& t) { t.prescale = 0.5; },
      [](Terms& t) { t.postscale = 0.5; },
      [](Terms& t) { t.device = 0; },
      [](Terms& t) { t.memory = MemoryKind::kDevice; },
      [](Terms& t) { t.wire = Wire::kInt8; },
  };
}

TEST(Terms, differ_by_every_field_that_must_agree) {
  const auto changes = every_change();
  const Terms plain;
  for (size_t i = 0; i < changes.size(); ++i) {
    Terms changed;
    changes[i](changed);
    EXPECT_NE(key_of(changed), key_of(plain)) << "change " << i;
    EXPECT_EQ(key_of(changed), key_of(Terms(changed)));
  }
  EXPECT_EQ(changes.size(), std::tuple_size_v<TermsKey>) << "a new field needs its line here";
}

TEST(Terms, that_differ_between_ranks_are_a_mismatch_with_a_sentence) {
  const TensorRequest plain = allreduce("t");
  for (const auto change : every_change()) {
    TensorRequest changed = plain;
    change(changed);
    const std::vector<Submission> submissions = {{0, plain}, {1, changed}};
    const std::vector<Rank> members = {0, 1}, joined;
    const Status status = find_mismatch({.submissions = submissions, .members = members, .joined = joined});
    EXPECT_EQ(status.code, Code::kMismatch);
    EXPECT_THAT(status.why, testing::StartsWith("Mismatched "));
    EXPECT_THAT(status.why, testing::HasSubstr("Tensor t: rank 0 has "));
  }
}

TEST(Terms, agree_for_gpus_of_other_numbers_and_for_shared_memory) {
  Terms first, second;
  first.device = 0;
  second.device = 3;
  EXPECT_EQ(key_of(first), key_of(second));
  second = first;
  second.memory = MemoryKind::kShared;
  EXPECT_EQ(key_of(first), key_of(second));
}

TEST(Terms, agree_where_both_factors_are_no_number) {
  Terms terms;
  terms.prescale = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(key_of(terms), key_of(Terms(terms)));
}

}  // namespace
}  // namespace rueda::control::terms_test
