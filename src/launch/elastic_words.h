// What the user is told about the processes of an elastic job. Pure.
#pragma once

#include <string>

#include "launch/ending.h"
#include "rueda/membership/view.h"

namespace rueda::launch {

// "view 3 has 2 ranks; gone: b:0#0; new: a:1#1; it goes on from commit 7"
std::string describe_view(const membership::View& view);

// How a process has ended that others may miss. ending.rank is its rank if it was a member.
std::string describe_loss(const Ending& ending, const membership::Uid& uid, const membership::View& view);
// A member that has ended with exit status 0 while the others go on, in the same words.
std::string describe_early_end(const Ending& ending, const membership::Uid& uid,
                               const membership::View& view);

// Of a host that cannot be used.
std::string describe_absence(const std::string& host, const std::string& why);

}  // namespace rueda::launch
