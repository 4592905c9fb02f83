// Keeps the lines of ranks apart on one console when a line is too long to be kept until its end: it is
// written piece by piece, and whole lines of the others wait until it has ended or is broken off. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "launch/output.h"
#include "rueda/base/clock.h"

namespace rueda::launch {

// While others wait, a line may take this long from its first piece to its end. The rank may itself wait for
// a rank that we keep waiting.
inline constexpr Nanos kLongestTurn = 10 * kSecond;

class LineTurns {
 public:
  using Speaker = std::pair<Rank, Stream>;

  explicit LineTurns(bool is_verbatim = false) : is_verbatim_(is_verbatim) {}

  // Each returns what is to be written now. fragment: of another speaker than the holder it must be a whole
  // line, or the rest of one that was broken off.
  std::string add(Speaker who, const Fragment& fragment, std::string_view prefix, Nanos now);
  std::string add_text(std::string_view lines);  // whole lines of nobody
  // Ends the piecemeal line, with "\n" unless bytes are shown as they came, and lets those that wait follow.
  // Its rest is to come as one line, which gets a prefix.
  std::string break_off();

  [[nodiscard]] std::optional<Speaker> holder() const { return holder_; }  // whose line is being written
  [[nodiscard]] size_t waiting_bytes() const { return waiting_.size(); }
  [[nodiscard]] bool is_overdue(Nanos now) const {
    return holder_ && !waiting_.empty() && now - since_ >= kLongestTurn;
  }

 private:
  bool is_verbatim_;
  std::optional<Speaker> holder_;
  Nanos since_ = 0;  // when the holder's line began
  std::string waiting_;
  std::set<Speaker> broken_;  // whose lines were broken off and have not ended
};

}  // namespace rueda::launch
