// For which ranks an init waits: said once in the log after 5 s, and shown by `rueda status` meanwhile.
// Any thread.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"

namespace rueda::runtime {

class InitWait {
 public:
  struct View {
    Rank rank = 0, size = 0;
    std::string met_at;         // the store; empty: not known
    Nanos since = 0;            // init was called
    std::vector<Rank> missing;  // ranks that have not called init, as far as this one knows
  };
  // In a world of this size every rank finds out who is missing, and says it. In a larger one rank 0 does;
  // the others say only that rank 0 is missing.
  static constexpr Rank kSmallWorld = 16;

  // Until rank 0 has come, no other rank knows more. is_told: the launcher says who is missing.
  void begin(Rank rank, Rank size, std::string met_at, bool is_told, Nanos now);
  void end();
  // Whether it is time to find out who is missing.
  [[nodiscard]] bool is_due(Nanos now) const;
  void found(std::vector<Rank> missing, Nanos now);
  // One sentence once the wait is long; otherwise, and from then on, empty.
  std::string take_sentence(Nanos now);
  void say(Nanos now);  // that sentence, in the log
  // Empty: no init waits.
  [[nodiscard]] std::optional<View> view() const;

 private:
  mutable std::mutex mutex_;
  std::optional<View> view_;
  Nanos found_at_ = 0;
  bool has_said_ = false;  // or the launcher does
};

}  // namespace rueda::runtime
