#include "rueda/base/nearest.h"

#include <gmock/gmock.h>

#include <vector>

namespace rueda::base_nearest_test {
namespace {

TEST(Edits, count_letters_that_differ_and_neighbours_that_are_swapped) {
  EXPECT_EQ(edits("status", "status"), 0U);
  EXPECT_EQ(edits("stauts", "status"), 1U);
  EXPECT_EQ(edits("stats", "status"), 1U);
  EXPECT_EQ(edits("statuss", "status"), 1U);
  EXPECT_EQ(edits("stafus", "status"), 1U);
  EXPECT_EQ(edits("", "abc"), 3U);
  EXPECT_EQ(edits("abc", ""), 3U);
  EXPECT_EQ(edits("kitten", "sitting"), 3U);
  EXPECT_EQ(edits("ca", "abc"), 3U) << "a letter is edited once";
}

TEST(Edits, are_the_same_both_ways) {
  for (const auto& [a, b] : {std::pair("run", "urn"), std::pair("doctor", "dcotro"), std::pair("a", "xyz")})
    EXPECT_EQ(edits(a, b), edits(b, a)) << a << " " << b;
}

TEST(NearestWord, needs_few_edits_or_is_the_only_one_that_begins_so) {
  const std::vector<std::string> commands = {"run",    "preflight", "bench", "status",
                                             "stacks", "timeline",  "doctor"};
  EXPECT_EQ(nearest_word("ru", commands), "run");
  EXPECT_EQ(nearest_word("stauts", commands), "status");
  EXPECT_EQ(nearest_word("rnu", commands), "run");
  EXPECT_EQ(nearest_word("pre", commands), "preflight");
  EXPECT_EQ(nearest_word("time", commands), "timeline");
  EXPECT_EQ(nearest_word("docter", commands), "doctor");
}

TEST(NearestWord, is_none_where_a_guess_would_be_wild) {
  const std::vector<std::string> commands = {"run", "status", "stacks"};
  for (const char* word : {"", "-", "--", "r", "train", "launch", "python", "sta"})
    EXPECT_EQ(nearest_word(word, commands), "") << word;
  EXPECT_EQ(nearest_word("run", {}), "");
}

TEST(NearestWord, does_not_count_dashes) {
  const std::vector<std::string> options = {"--np", "--hosts", "--hostfile", "--log-dir", "--log-level"};
  EXPECT_EQ(nearest_word("--logdir", options), "--log-dir");
  EXPECT_EQ(nearest_word("-log-dri", options), "--log-dir");
  EXPECT_EQ(nearest_word("--hostfil", options), "--hostfile");
  EXPECT_EQ(nearest_word("--host", options), "--hosts");
  EXPECT_EQ(nearest_word("--foo", options), "");
  EXPECT_EQ(nearest_word("-z", options), "");
}

}  // namespace
}  // namespace rueda::base_nearest_test
