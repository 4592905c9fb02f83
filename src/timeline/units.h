// Times and sizes as people read them.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace rueda::timeline {

inline std::string time_text(double nanoseconds) {
  if (nanoseconds < 999.5) return fmt::format("{:.0f} ns", nanoseconds);
  if (nanoseconds < 999.5e3) return fmt::format("{:.3g} us", nanoseconds / 1e3);
  if (nanoseconds < 999.5e6) return fmt::format("{:.3g} ms", nanoseconds / 1e6);
  return fmt::format("{:.3g} s", nanoseconds / 1e9);
}

// "1 rank", "2 ranks"
inline std::string count_text(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

inline std::string size_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.3g} KiB", value / 1024);
  if (bytes < 1024 * 1024 * 1024) return fmt::format("{:.3g} MiB", value / (1 << 20));
  return fmt::format("{:.3g} GiB", value / (1 << 30));
}

inline std::string percent_text(double part) {
  const double percent = part * 100;
  return std::abs(percent) < 9.95 ? fmt::format("{:.1f} %", percent) : fmt::format("{:.0f} %", percent);
}

// Names of programs and hosts must not move the cursor of the terminal: control characters become "?".
inline std::string for_terminal(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F) c = '?';
  return text;
}

}  // namespace rueda::timeline
