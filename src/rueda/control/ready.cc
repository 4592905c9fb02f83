#include "rueda/control/ready.h"

#include <utility>

namespace rueda::control {

std::vector<Response> Ready::take() {
  std::vector<Response> out;
  std::vector<Unit> units;
  const auto flush = [&] {
    for (Bucket& bucket : fuse(std::exchange(units, {}), fusion_)) out.emplace_back(std::move(bucket));
  };
  // A response that runs nothing keeps its place in the order, also among tensors with a priority.
  for (std::variant<Unit, Response>& one : std::exchange(arrived_, {})) {
    Unit* unit = std::get_if<Unit>(&one);
    if (unit == nullptr) {
      flush();
      while (!prioritized_.is_empty()) out.emplace_back(prioritized_.take(priority_bytes_));
      out.push_back(std::move(std::get<Response>(one)));
    } else if (unit->candidates[0].priority != 0) {
      for (Candidate& candidate : unit->candidates) prioritized_.add(std::move(candidate));
    } else {
      units.push_back(std::move(*unit));
    }
  }
  if (prioritized_.highest() > 0) out.emplace_back(prioritized_.take(priority_bytes_));
  flush();
  if (out.empty() && !prioritized_.is_empty()) out.emplace_back(prioritized_.take(priority_bytes_));
  return out;
}

}  // namespace rueda::control
