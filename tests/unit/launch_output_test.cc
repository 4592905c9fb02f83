#include "launch/output.h"
#include "launch/rank_output.h"

#include <gmock/gmock.h>

#include <random>

namespace rueda::launch::output_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Assembled {
 public:
  void feed(std::string_view bytes) { assembler.feed(bytes, emit_); }
  void finish() { assembler.finish(emit_); }
  void let_go() { assembler.let_go(emit_); }
  LineAssembler assembler;
  // Text and end; '+' in front of a continuation, '>' behind a piece of a line that goes on.
  std::vector<std::string> fragments;

 private:
  Emit emit_ = [this](const Fragment& fragment) {
    fragments.push_back((fragment.is_continuation ? "+" : "") + std::string(fragment.text) +
                        std::string(fragment.end) + (fragment.goes_on ? ">" : ""));
  };
};

TEST(LineAssembler, line_waits_for_its_end) {
  Assembled lines;
  lines.feed("ab");
  EXPECT_THAT(lines.fragments, IsEmpty());
  lines.feed("c\nd");
  EXPECT_THAT(lines.fragments, ElementsAre("abc\n"));
}

TEST(LineAssembler, unfinished_line_comes_out_at_the_end_of_the_stream) {
  Assembled lines;
  lines.feed("abc");
  lines.finish();
  lines.finish();
  EXPECT_THAT(lines.fragments, ElementsAre("abc\n"));
}

TEST(LineAssembler, empty_lines_are_lines) {
  Assembled lines;
  lines.feed("\n\na\n");
  EXPECT_THAT(lines.fragments, ElementsAre("\n", "\n", "a\n"));
}

TEST(LineAssembler, return_ends_a_fragment_at_once_and_is_kept) {
  Assembled lines;
  lines.feed("10%\r20%\r");
  EXPECT_THAT(lines.fragments, ElementsAre("10%\r", "20%\r"));
}

TEST(LineAssembler, leading_return_of_a_progress_bar_makes_no_empty_fragment) {
  Assembled lines;
  lines.feed("\r10%");
  lines.feed("\r20%\n");
  EXPECT_THAT(lines.fragments, ElementsAre("10%\r", "20%\n"));
}

TEST(LineAssembler, return_and_newline_are_one_end_even_when_torn_apart) {
  Assembled whole;
  whole.feed("a\r\nb\r\n");
  EXPECT_THAT(whole.fragments, ElementsAre("a\r\n", "b\r\n"));
  Assembled torn;
  torn.feed("a\r");
  torn.feed("\nb");
  torn.finish();
  EXPECT_THAT(torn.fragments, ElementsAre("a\r", "+\n", "b\n"));
}

TEST(LineAssembler, long_line_stays_whole) {
  Assembled lines;
  const std::string text(10 * kShortLineBytes, 'x');
  lines.feed(text);
  EXPECT_EQ(lines.assembler.kept_bytes(), text.size());
  lines.feed("\nb\n");
  EXPECT_THAT(lines.fragments, ElementsAre(text + "\n", "b\n"));
  EXPECT_EQ(lines.assembler.kept_bytes(), 0u);
}

TEST(LineAssembler, line_that_was_let_go_comes_in_pieces_until_it_ends) {
  Assembled lines;
  lines.feed("ab");
  lines.let_go();
  lines.feed("c€");
  lines.feed("d\nef");
  EXPECT_THAT(lines.fragments, ElementsAre("ab>", "+c€>", "+d\n")) << "the next line is kept again";
  lines.feed("g\n");
  EXPECT_EQ(lines.fragments.back(), "efg\n");
}

TEST(LineAssembler, line_that_was_let_go_may_be_kept_again) {
  Assembled lines;
  lines.feed("ab");
  lines.let_go();
  lines.assembler.keep();
  lines.feed("cd");
  lines.feed("ef\r\n");
  EXPECT_THAT(lines.fragments, ElementsAre("ab>", "+cdef\r\n"));
}

TEST(LineAssembler, line_that_was_let_go_ends_with_its_stream) {
  Assembled lines;
  lines.feed("ab");
  lines.let_go();
  lines.finish();
  lines.finish();
  EXPECT_THAT(lines.fragments, ElementsAre("ab>", "+\n"));
}

TEST(LineAssembler, pieces_are_cut_between_characters) {
  const std::string text = "aä€😀z";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Assembled lines;
    lines.feed(text.substr(0, cut));
    lines.let_go();
    lines.feed(text.substr(cut));
    lines.finish();
    std::string joined;
    for (std::string fragment : lines.fragments) {
      std::erase(fragment, '+');
      std::erase(fragment, '>');
      EXPECT_NE(static_cast<unsigned char>(fragment.front()) & 0xC0, 0x80) << "begins inside a character";
      joined += fragment;
    }
    EXPECT_EQ(joined, text + "\n");
  }
}

TEST(LineAssembler, chunks_do_not_matter) {
  const std::string text = "alpha\nbeta gamma\n\nδέλτα\nlast";
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Assembled lines;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 9;
      lines.feed(std::string_view(text).substr(at, size));
      at += size;
    }
    lines.finish();
    EXPECT_THAT(lines.fragments, ElementsAre("alpha\n", "beta gamma\n", "\n", "δέλτα\n", "last\n"))
        << "round " << round;
  }
}

TEST(LineAssembler, verbatim_fragments_are_the_bytes_and_keep_lines_whole) {
  const std::string long_line(kShortLineBytes + 5, 'x');
  const std::string text = "\r10%\r\n\r\r\nwhole line\n" + long_line + "\nno end";
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    std::string joined;
    std::vector<std::string> lines;
    LineAssembler assembler(true);
    const Emit emit = [&](const Fragment& fragment) {
      lines.emplace_back(fragment.text);
      joined.append(fragment.text).append(fragment.end);
    };
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % (round < 25 ? 9 : 5000);
      assembler.feed(std::string_view(text).substr(at, size), emit);
      if (random() % 100 == 0 && at > 40) assembler.let_go(emit);
      at += size;
    }
    assembler.finish(emit);
    EXPECT_EQ(joined, text) << "round " << round;
    EXPECT_THAT(lines, ::testing::Contains("whole line"));
  }
}

TEST(Tail, keeps_the_last_lines_in_order_without_empty_ones) {
  Tail tail(3);
  for (const char* line : {"a", "b", "", "c", "d"}) tail.add({.text = line, .end = "\n"});
  EXPECT_THAT(tail.lines(), ElementsAre("b", "c", "d"));
}

TEST(Prefix, names_rank_and_host) {
  EXPECT_EQ(line_prefix({}, 3, "node-b", Stream::kStdout, ""), "[3 node-b] ");
  EXPECT_EQ(line_prefix({.has_time = true}, 3, "h", Stream::kStdout, "12:00"), "[12:00 3 h] ");
  EXPECT_EQ(line_prefix({.kind = PrefixStyle::Kind::kNone}, 3, "h", Stream::kStdout, ""), "");
}

TEST(Prefix, horovods_names_the_stream_and_is_never_coloured) {
  const PrefixStyle style{.kind = PrefixStyle::Kind::kHorovod, .is_coloured = true};
  EXPECT_EQ(line_prefix(style, 3, "h", Stream::kStdout, ""), "[3]<stdout>:");
  EXPECT_EQ(line_prefix(style, 3, "h", Stream::kStderr, ""), "[3]<stderr>:");
}

TEST(Prefix, neighbouring_ranks_have_different_colours_that_end_with_the_prefix) {
  const PrefixStyle style{.is_coloured = true};
  const std::string first = line_prefix(style, 0, "h", Stream::kStdout, "");
  EXPECT_NE(first.substr(0, 5), line_prefix(style, 1, "h", Stream::kStdout, "").substr(0, 5));
  EXPECT_TRUE(first.ends_with("\x1b[0m "));
}

// The next ones may be written, as when a disk is full for a while.
TEST(RankOutput, metrics_that_cannot_be_written_lose_no_log) {
  RankOutput output({.style = {}, .shown = {}, .log_dir = "/nowhere/logs", .log_url = {}, .output_dir = {}},
                    1);
  output.write_metrics(0, "rueda_steps_total 1\n");
  EXPECT_FALSE(output.has_lost_logs());
}

}  // namespace
}  // namespace rueda::launch::output_test
