#include "rueda/schedule/hazards.h"

namespace rueda::schedule {

void Hazards::read(int32_t step, int64_t begin, int64_t end, std::vector<int32_t>& after) {
  accesses_.visit(begin, end, [&](int64_t, int64_t, Accesses& accesses) {
    if (accesses.writer >= 0) after.push_back(accesses.writer);
    accesses.readers.push_back(step);
  });
}

void Hazards::write(int32_t step, int64_t begin, int64_t end, std::vector<int32_t>& after) {
  accesses_.visit(begin, end, [&](int64_t, int64_t, const Accesses& accesses) {
    bool has_reader = false;
    for (int32_t reader : accesses.readers) {
      if (reader == step) continue;  // a step may overwrite what it reads itself
      after.push_back(reader);
      has_reader = true;
    }
    if (!has_reader && accesses.writer >= 0) after.push_back(accesses.writer);
  });
  accesses_.assign(begin, end, {.writer = step, .readers = {}});
}

}  // namespace rueda::schedule
