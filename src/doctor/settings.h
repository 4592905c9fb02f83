// Which RUEDA_ and HOROVOD_ variables are set here, and what they do. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/report.h"
#include "launch/environment.h"

namespace rueda::doctor {

Section examine_settings(const launch::Variables& environment);

// One sentence for each RUEDA_ variable that is no setting but whose name is nearly that of one.
std::vector<std::string> misspelt_settings(const launch::Variables& environment);

// The known name that is fewest single-letter edits away; "" if even that one differs too much.
std::string nearest_setting(std::string_view unknown);

}  // namespace rueda::doctor
