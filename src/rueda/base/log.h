// Log records in the shape operators of Horovod know: "[2023-06-13 12:34:56.789012: W file:12] [0]: text".
// TRACE, DEBUG and INFO go to stdout, the rest to stderr. Any thread.
#pragma once

#include <array>
#include <string_view>

namespace rueda {

enum class LogLevel : int { kTrace = 0, kDebug, kInfo, kWarning, kError, kFatal };
inline constexpr std::array<std::string_view, 6> kLogLevelNames = {"trace",   "debug", "info",
                                                                   "warning", "error", "fatal"};

void set_log_level(LogLevel level);
void set_log_rank(int rank);  // -1: not known yet
void set_log_hide_time(bool hide_time);
LogLevel log_level();
void log_record(LogLevel level, const char* file, int line, std::string_view text);
// Whether this is the first time that the process asks for this text. Remembers the first 100 texts; later
// ones are always new.
bool is_new_in_log(std::string_view text);

}  // namespace rueda

// text is anything that converts to std::string_view. It is evaluated only if the level is on.
#define RUEDA_LOG(level, text)                                                   \
  do {                                                                           \
    if (::rueda::LogLevel::level >= ::rueda::log_level())                        \
      ::rueda::log_record(::rueda::LogLevel::level, __FILE__, __LINE__, (text)); \
  } while (false)

// The same, but a text is logged once by each process: a job that calls init again and again says it once.
#define RUEDA_LOG_ONCE(level, text)                                                         \
  do {                                                                                      \
    if (::rueda::LogLevel::level >= ::rueda::log_level() && ::rueda::is_new_in_log((text))) \
      ::rueda::log_record(::rueda::LogLevel::level, __FILE__, __LINE__, (text));            \
  } while (false)
