#include "rueda/status/python_text.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace rueda::status {
namespace {

constexpr std::string_view kThread = "Thread 0x", kCurrent = "Current thread 0x";
constexpr std::string_view kFile = "  File ", kLine = ", line ", kIn = " in ";

std::optional<uint64_t> thread_of(std::string_view line) {
  for (const std::string_view prefix : {kThread, kCurrent}) {
    if (!line.starts_with(prefix)) continue;
    uint64_t ident = 0;
    line.remove_prefix(prefix.size());
    if (std::from_chars(line.data(), line.data() + line.size(), ident, 16).ec == std::errc()) return ident;
  }
  return std::nullopt;
}

// A file may have any name, so the line's end is read first. A function has no blank in its name, except
// for "<listcomp>" and the like, which have none either.
std::optional<PythonFrame> frame_of(std::string_view line) {
  if (!line.starts_with(kFile)) return std::nullopt;
  const size_t in = line.rfind(kIn), number = line.rfind(kLine, in);
  if (in == std::string_view::npos || number == std::string_view::npos || number < kFile.size())
    return std::nullopt;
  PythonFrame frame;
  std::string_view file = line.substr(kFile.size(), number - kFile.size());
  if (file.size() >= 2 && file.front() == '"' && file.back() == '"') file = file.substr(1, file.size() - 2);
  frame.file = file;
  const size_t digits = number + kLine.size();
  if (std::from_chars(line.data() + digits, line.data() + in, frame.line).ec != std::errc()) frame.line = 0;
  frame.function = line.substr(in + kIn.size());
  return frame;
}

}  // namespace

std::vector<PythonThread> parse_python_text(std::string_view text) {
  std::vector<PythonThread> threads;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (const auto ident = thread_of(line)) {
      threads.push_back({.ident = *ident, .frames = {}});
    } else if (auto frame = frame_of(line); frame && !threads.empty()) {
      threads.back().frames.push_back(*std::move(frame));
    }
  }
  return threads;
}

}  // namespace rueda::status
