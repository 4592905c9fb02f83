// Which members the next view leaves out because the network between hosts is cut, although all are alive.
// Pure.
#pragma once

#include <utility>
#include <vector>

#include "rueda/membership/view.h"

namespace rueda::membership {

// One member says that the host of another acknowledges nothing.
using Cut = std::pair<Uid, Uid>;

// members: of a view, in the order of their ranks. Whole hosts are left out: first the one with the most cut
// links to others, of equal ones the one whose first member is the youngest, until no link is left. Cuts that
// name others, or two members of one host, count for nothing.
std::vector<Uid> left_out(const std::vector<Member>& members, const std::vector<Cut>& cuts);

}  // namespace rueda::membership
