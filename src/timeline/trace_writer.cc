#include "timeline/trace_writer.h"

namespace rueda::timeline {

std::string Row::name() const {
  const auto numbered = [this](std::string name) {
    return lane == 0 ? name : std::move(name) + " (" + std::to_string(lane + 1) + " at once)";
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
      return numbered("sent to rank " + std::to_string(peer));
    case Kind::kReceived:
      return numbered("received from rank " + std::to_string(peer));
    case Kind::kTensor:
      return std::string(tensor);
  }
  return {};
}

}  // namespace rueda::timeline
