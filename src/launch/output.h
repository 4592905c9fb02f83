// Turns the bytes of a rank's stdout or stderr into whole lines with a prefix. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rueda/base/types.h"

namespace rueda::launch {

enum class Stream : uint8_t { kStdout = 1, kStderr = 2 };

// A longer line is cut between UTF-8 characters, so that a rank that never ends its line cannot
// exhaust our memory.
inline constexpr size_t kMaxLineBytes = 64 << 10;

struct Fragment {
  std::string_view text;         // without its end
  std::string_view end;          // "\n", "\r", "\r\n"; "" for text that is shown as it came
  bool is_continuation = false;  // the "\n" after a "\r" that was already emitted; gets no prefix
};
using Emit = std::function<void(const Fragment&)>;

// '\r' ends a fragment and is kept, so that progress bars redraw. An empty fragment before '\r' is dropped.
class LineAssembler {
 public:
  // is_verbatim: the fragments together are exactly the bytes that were fed, so a fragment that was
  // cut or never finished has no end. Otherwise such a fragment gets "\n", so that the next prefix
  // begins a new line.
  explicit LineAssembler(bool is_verbatim = false) : is_verbatim_(is_verbatim) {}
  void feed(std::string_view bytes, const Emit& emit);
  void finish(const Emit& emit);  // the stream ended: emits an unfinished line

 private:
  void cut_long_line(const Emit& emit);
  [[nodiscard]] std::string_view added_end() const { return is_verbatim_ ? "" : "\n"; }
  bool is_verbatim_;
  std::string partial_;
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
