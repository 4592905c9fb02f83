// RUEDA_CHECK detects bugs in rueda and is always on. It prints the condition, the place and the
// reason, and aborts.
#pragma once

namespace rueda {

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const char* why);

}  // namespace rueda

#define RUEDA_CHECK(condition, why)                                 \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::rueda::check_failed(#condition, __FILE__, __LINE__, (why)); \
  } while (false)
