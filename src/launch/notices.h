// What the user is told while the job runs, in the words of horovodrun if its style was asked for. Each text
// ends in a newline, or is empty if there is nothing to say. Pure.
#pragma once

#include <string>

#include "launch/ending.h"
#include "launch/output.h"

namespace rueda::launch {

std::string exit_notice(PrefixStyle::Kind style, const Ending& ending);
// The first failure was noticed, and `running` other ranks still run.
std::string stop_notice(PrefixStyle::Kind style, Rank failed, int running, Nanos grace);
std::string interrupt_notice(int signal, double grace_s);
// The agent of that host was told to end.
std::string reported_notice(const std::string& host, int signal, double grace_s);
// The last words of a failed job.
std::string closing_notice(PrefixStyle::Kind style, const Ending& cause);

}  // namespace rueda::launch
