// Turns the bytes of a rank's stdout or stderr into whole lines with a prefix. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/types.h"

namespace rueda::launch {

enum class Stream : uint8_t { kStdout = 1, kStderr = 2 };

// Memory that an unfinished line may have in any case.
inline constexpr size_t kShortLineBytes = 64 << 10;

struct Fragment {
  std::string_view text;  // without its end
  std::string_view end;   // "\n", "\r", "\r\n"; "" for text that is shown as it came
  // It goes on with a line whose beginning was already emitted, or is the "\n" after such a "\r"; it gets no
  // prefix.
  bool is_continuation = false;
  bool goes_on = false;  // the line has more than this; its rest follows in continuations
};
using Emit = std::function<void(const Fragment&)>;

// '\r' ends a fragment and is kept, so that progress bars redraw. An empty fragment before '\r' is dropped.
// A line is kept until its end, however long it is. Who must bound memory lets it go before.
class LineAssembler {
 public:
  // is_verbatim: the fragments together are exactly the bytes that were fed, so a fragment that was never
  // finished has no end. Otherwise it gets "\n", so that the next prefix begins a new line.
  explicit LineAssembler(bool is_verbatim = false) : is_verbatim_(is_verbatim) {}
  void feed(std::string_view bytes, const Emit& emit);
  void finish(const Emit& emit);  // the stream ended: emits an unfinished line
  // Emits what there is of the unfinished line, and until the line ends what comes of it at once. Pieces are
  // cut between UTF-8 characters.
  void let_go(const Emit& emit);
  void keep() { lets_go_ = false; }  // what comes of the unfinished line is kept again
  [[nodiscard]] size_t kept_bytes() const { return partial_.size(); }

 private:
  void emit_piece(const Emit& emit);
  void end_line();
  bool is_verbatim_;
  std::string partial_;
  bool has_begun_ = false;  // the beginning of the unfinished line was emitted
  bool lets_go_ = false;
  bool ended_with_return_ = false;
};

// The last lines of a stream, for the failure report.
class Tail {
 public:
  explicit Tail(size_t max_lines) : max_lines_(max_lines) {}
  void add(const Fragment& fragment);
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  size_t max_lines_;
  std::vector<std::string> ring_;
  size_t next_ = 0;
};

struct PrefixStyle {
  enum class Kind { kNone, kRueda, kHorovod } kind = Kind::kRueda;
  bool is_coloured = false;
  bool has_time = false;
};
// now_text: local time, used only if the style asks for it.
std::string line_prefix(const PrefixStyle& style, Rank rank, std::string_view host, Stream stream,
                        std::string_view now_text);

}  // namespace rueda::launch
