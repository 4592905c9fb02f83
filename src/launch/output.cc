#include "launch/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace rueda::launch {
namespace {

// How many of the first `max` bytes can be taken without cutting a UTF-8 sequence in two. text is
// longer than max.
size_t utf8_cut(std::string_view text, size_t max) {
  size_t cut = max;
  for (int back = 0; back < 3 && cut > 0; ++back) {
    if ((static_cast<unsigned char>(text[cut]) & 0xC0) != 0x80) return cut;
    --cut;
  }
  const bool is_utf8 = (static_cast<unsigned char>(text[cut]) & 0xC0) != 0x80;
  return is_utf8 ? cut : max;
}

// How many bytes there are before a UTF-8 sequence that the text begins and does not end.
size_t utf8_whole(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // inside a sequence
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

void LineAssembler::feed(std::string_view bytes, const Emit& emit) {
  if (bytes.empty()) return;
  if (ended_with_return_ && bytes.front() == '\n') {
    emit({.text = "", .end = "\n", .is_continuation = true});
    bytes.remove_prefix(1);
  }
  if (bytes.empty()) {
    ended_with_return_ = false;
    return;
  }
  ended_with_return_ = false;
  while (!bytes.empty()) {
    const size_t at = bytes.find_first_of("\r\n");
    partial_ += bytes.substr(0, at);
    if (at == std::string_view::npos) {
      if (lets_go_) emit_piece(emit);
      return;
    }
    size_t width = 1;
    if (bytes[at] == '\r' && at + 1 < bytes.size() && bytes[at + 1] == '\n') width = 2;
    const std::string_view end = bytes.substr(at, width);
    if (is_verbatim_ || end != "\r" || !partial_.empty() || has_begun_) {
      emit({.text = partial_, .end = end, .is_continuation = has_begun_});
      ended_with_return_ = end == "\r" && at + 1 == bytes.size();
    }
    end_line();
    bytes.remove_prefix(at + width);
  }
}

void LineAssembler::let_go(const Emit& emit) {
  lets_go_ = true;
  emit_piece(emit);
}

void LineAssembler::emit_piece(const Emit& emit) {
  const size_t whole = utf8_whole(partial_);
  if (whole == 0) return;
  const std::string rest = partial_.substr(whole);
  emit({.text = std::string_view(partial_).substr(0, whole),
        .end = "",
        .is_continuation = has_begun_,
        .goes_on = true});
  has_begun_ = true;
  partial_ = rest;  // in new memory, so that a long line does not leave its room behind
}

void LineAssembler::end_line() {
  if (partial_.capacity() > kShortLineBytes)
    partial_ = {};
  else
    partial_.clear();
  has_begun_ = lets_go_ = false;
}

void LineAssembler::finish(const Emit& emit) {
  if (!partial_.empty() || has_begun_)
    emit({.text = partial_, .end = is_verbatim_ ? "" : "\n", .is_continuation = has_begun_});
  end_line();
  ended_with_return_ = false;
}

void Tail::add(const Fragment& fragment) {
  if (fragment.is_continuation || fragment.text.empty()) return;
  // Lines are cut because people read the report. The limit leaves room for a mismatch error that
  // names all ranks.
  constexpr size_t kMaxTailLine = 1000;
  std::string line(fragment.text.size() > kMaxTailLine
                       ? fmt::format("{}…", fragment.text.substr(0, utf8_cut(fragment.text, kMaxTailLine)))
                       : std::string(fragment.text));
  if (ring_.size() < max_lines_) {
    ring_.push_back(std::move(line));
    return;
  }
  ring_[next_] = std::move(line);
  next_ = (next_ + 1) % max_lines_;
}

std::vector<std::string> Tail::lines() const {
  std::vector<std::string> lines(ring_);
  std::ranges::rotate(lines, lines.begin() + static_cast<std::ptrdiff_t>(next_));
  return lines;
}

std::string line_prefix(const PrefixStyle& style, Rank rank, std::string_view host, Stream stream,
                        std::string_view now_text) {
  const std::string_view time = style.has_time ? now_text : std::string_view();
  if (style.kind == PrefixStyle::Kind::kNone) return {};
  if (style.kind == PrefixStyle::Kind::kHorovod)
    return fmt::format("{}[{}]<{}>:", time, rank, stream == Stream::kStdout ? "stdout" : "stderr");
  const std::string text = fmt::format("[{}{}{} {}]", time, time.empty() ? "" : " ", rank, host);
  if (!style.is_coloured) return text + " ";
  // Readable on dark and light backgrounds. Neighbours differ clearly, and red is left to errors.
  constexpr std::array<int, 10> kColours = {36, 33, 35, 32, 34, 96, 93, 95, 92, 94};
  return fmt::format("\x1b[{}m{}\x1b[0m ", kColours[static_cast<size_t>(rank) % kColours.size()], text);
}

}  // namespace rueda::launch
