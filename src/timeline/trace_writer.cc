#include "timeline/trace_writer.h"

namespace rueda::timeline {

std::string Row::name() const {
  const auto numbered = [this](std::string name) {
    return lane == 0 ? name : std::move(name) + " " + std::to_string(lane + 1);
  };
  switch (kind) {
    case Kind::kSteps:
      return "steps";
    case Kind::kEvents:
      return "events";
    case Kind::kInput:
      return "waiting for input";
    case Kind::kBlocked:
      return numbered("blocked");
    case Kind::kCalls:
      return numbered("transfers");
    case Kind::kSent:
      return numbered("to rank " + std::to_string(peer) + (lane == 0 ? "" : ","));
    case Kind::kReceived:
      return numbered("from rank " + std::to_string(peer) + (lane == 0 ? "" : ","));
  }
  return {};
}

}  // namespace rueda::timeline
