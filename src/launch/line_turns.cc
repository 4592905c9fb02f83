#include "launch/line_turns.h"

namespace rueda::launch {

std::string LineTurns::add(Speaker who, const Fragment& fragment, std::string_view prefix, Nanos now) {
  std::string text;
  if (!fragment.is_continuation || broken_.erase(who) != 0) text = prefix;
  text += fragment.text;
  text += fragment.end;
  if (holder_ && *holder_ != who) {
    waiting_ += text;
    return {};
  }
  if (fragment.goes_on) {
    if (!holder_) since_ = now;
    holder_ = who;
  } else if (holder_) {
    holder_.reset();
    text += std::exchange(waiting_, {});
  }
  return text;
}

std::string LineTurns::add_text(std::string_view lines) {
  if (!holder_) return std::string(lines);
  waiting_ += lines;
  return {};
}

std::string LineTurns::break_off() {
  if (!holder_) return {};
  broken_.insert(*std::exchange(holder_, std::nullopt));
  return (is_verbatim_ ? "" : "\n") + std::exchange(waiting_, {});
}

}  // namespace rueda::launch
