// The last calls whose names are numbers, and whether they repeat: where no name recurs, nothing else tells
// where a step ends. Calls are held in the order of their numbers, which is that of the program, because
// answers may overtake one another. Pure.
//
// Example: the calls 11 to 19 are A B B A B B A B B. They repeat with a period of 3, so if two repeats are
// asked for, the last three calls are a step, and each number grows by 3 from step to step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "rueda/control/seen_tensor.h"

namespace rueda::control {

class CallHistory {
 public:
  void add(SeenTensor call);
  void clear();
  [[nodiscard]] size_t size() const { return calls_.size(); }

  struct Period {
    size_t calls = 0;
    int64_t stride = 0;  // by how much the numbers grow from one period to the next
  };
  // The shortest with which the last calls repeat, at least so many times after the first one. A call that
  // was submitted before the one of the period before was answered is no repetition of it.
  [[nodiscard]] std::optional<Period> period(int repeats) const;
  [[nodiscard]] std::vector<SeenTensor> last(size_t calls) const;

 private:
  struct Call {
    size_t kind = 0;  // equal for calls that may be the same in different steps
    int64_t number = 0;
    uint64_t seen = 0, started = 0;
  };
  size_t kind_of(SeenTensor call);
  [[nodiscard]] std::optional<Period> check(size_t calls, size_t window) const;

  std::vector<Call> calls_;
  std::vector<SeenTensor> kinds_;  // the first call of each
  std::unordered_map<std::string, size_t> known_;
  size_t rows_ = 0;  // in all kinds
};

}  // namespace rueda::control
