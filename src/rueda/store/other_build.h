// A client and a store whose builds of rueda do not understand each other: the sentence that both sides say.
// Pure.
#pragma once

#include <string>
#include <string_view>

#include "rueda/base/clock.h"
#include "rueda/base/handshake.h"

namespace rueda::store {

// How long the process of an earlier try may need to end: a job can be started again with another build.
inline constexpr Nanos kLeavingBuild = 700 * kMillisecond;

inline bool is_other_build(HandshakeOutcome outcome) {
  return outcome == HandshakeOutcome::kWrongVersion || outcome == HandshakeOutcome::kWrongProtocol;
}

// One of the two: "rank 1 on b", "the launcher's store at tcp://10.0.0.1:5000".
struct BuildOf {
  std::string_view who;
  SpokenVersion speaks;
};

// What to do where the launcher serves the store, where a rank does, and where only the other end knows.
inline constexpr std::string_view kUseItsLauncher =
    "start the job with the `rueda` command of the installation that its ranks load";
inline constexpr std::string_view kUseOneInstallation =
    "use the same installation of rueda on all hosts of the job";
inline constexpr std::string_view kUseEither =
    "start the job with the `rueda` command of the installation that its ranks load, the same on all hosts";

std::string other_build(const BuildOf& client, const BuildOf& server, std::string_view what_to_do);

}  // namespace rueda::store
