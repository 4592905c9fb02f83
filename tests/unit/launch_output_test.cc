#include "launch/output.h"

#include <gmock/gmock.h>

#include <random>

namespace rueda::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Assembled {
 public:
  void feed(std::string_view bytes) { assembler_.feed(bytes, emit_); }
  void finish() { assembler_.finish(emit_); }
  std::vector<std::string> fragments;  // text and end; '+' in front of a continuation

 private:
  LineAssembler assembler_;
  Emit emit_ = [this](const Fragment& fragment) {
    fragments.push_back((fragment.is_continuation ? "+" : "") + std::string(fragment.text) +
                        std::string(fragment.end));
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

TEST(LineAssembler, endless_line_is_cut_between_characters) {
  Assembled lines;
  std::string text = "x";
  while (text.size() <= 2 * kMaxLineBytes) text += "€";  // three bytes, so that the limit falls inside one
  lines.feed(text);
  lines.finish();
  ASSERT_EQ(lines.fragments.size(), 3u);
  std::string joined;
  for (const std::string& fragment : lines.fragments) {
    EXPECT_LE(fragment.size(), kMaxLineBytes + 1);
    EXPECT_NE(static_cast<unsigned char>(fragment.front()) & 0xC0, 0x80) << "begins inside a character";
    joined += fragment.substr(0, fragment.size() - 1);
  }
  EXPECT_EQ(joined, text);
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
  const std::string long_line(kMaxLineBytes + 5, 'x');
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

}  // namespace
}  // namespace rueda::launch
