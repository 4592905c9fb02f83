#include "rueda/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace rueda {

void check_failed(const char* condition, const char* file, int line, const char* why) {
  std::fprintf(stderr, "rueda: internal error at %s:%d: %s (%s). Please report it.\n", file, line, why,
               condition);
  std::abort();
}

}  // namespace rueda
