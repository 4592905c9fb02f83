#include "launch/line_turns.h"

#include <gmock/gmock.h>

namespace rueda::launch::line_turns_test {
namespace {

constexpr LineTurns::Speaker kFirst{0, Stream::kStdout}, kOther{1, Stream::kStdout};
constexpr Nanos kNow = 100 * kSecond;

Fragment line(std::string_view text) { return {.text = text, .end = "\n"}; }
Fragment piece(std::string_view text, bool is_first = false) {
  return {.text = text, .end = "", .is_continuation = !is_first, .goes_on = true};
}
Fragment last(std::string_view text) { return {.text = text, .end = "\n", .is_continuation = true}; }

TEST(LineTurns, whole_lines_pass) {
  LineTurns turns;
  EXPECT_EQ(turns.add(kFirst, line("a"), "[0] ", kNow), "[0] a\n");
  EXPECT_EQ(turns.add_text("rueda: x\n"), "rueda: x\n");
  EXPECT_FALSE(turns.holder());
}

TEST(LineTurns, others_wait_until_a_line_in_pieces_has_ended) {
  LineTurns turns;
  EXPECT_EQ(turns.add(kFirst, piece("a", true), "[0] ", kNow), "[0] a");
  EXPECT_EQ(turns.add(kOther, line("x"), "[1] ", kNow), "");
  EXPECT_EQ(turns.add_text("rueda: y\n"), "");
  EXPECT_EQ(turns.add(kFirst, piece("b"), "[0] ", kNow), "b");
  EXPECT_EQ(turns.waiting_bytes(), 6u + 9u);
  EXPECT_EQ(turns.add(kFirst, last("c"), "[0] ", kNow), "c\n[1] x\nrueda: y\n");
  EXPECT_EQ(turns.add(kOther, line("z"), "[1] ", kNow), "[1] z\n");
}

TEST(LineTurns, a_line_that_does_not_end_is_broken_off_and_its_rest_is_a_line_of_its_own) {
  LineTurns turns;
  turns.add(kFirst, piece("a", true), "[0] ", kNow);
  EXPECT_FALSE(turns.is_overdue(kNow + kLongestTurn)) << "nobody waits";
  turns.add(kOther, line("x"), "[1] ", kNow);
  EXPECT_FALSE(turns.is_overdue(kNow + kLongestTurn - 1));
  EXPECT_TRUE(turns.is_overdue(kNow + kLongestTurn));
  EXPECT_EQ(turns.break_off(), "\n[1] x\n");
  EXPECT_FALSE(turns.holder());
  EXPECT_EQ(turns.add(kOther, line("y"), "[1] ", kNow), "[1] y\n");
  EXPECT_EQ(turns.add(kFirst, last("b"), "[0] ", kNow), "[0] b\n");
  EXPECT_EQ(turns.add(kFirst, line("c"), "[0] ", kNow), "[0] c\n");
}

TEST(LineTurns, bytes_that_are_shown_as_they_came_get_no_newline) {
  LineTurns turns(true);
  turns.add(kFirst, piece("a", true), "", kNow);
  turns.add(kOther, line("x"), "", kNow);
  EXPECT_EQ(turns.break_off(), "x\n");
}

TEST(LineTurns, the_newline_of_a_torn_end_has_no_prefix) {
  LineTurns turns;
  turns.add(kFirst, {.text = "10%", .end = "\r"}, "[0] ", kNow);
  EXPECT_EQ(turns.add(kFirst, {.text = "", .end = "\n", .is_continuation = true}, "[0] ", kNow), "\n");
}

}  // namespace
}  // namespace rueda::launch::line_turns_test
