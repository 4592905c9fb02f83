// Which RUEDA_ and HOROVOD_ variables are set here, and what they do. Pure.
#pragma once

#include <string>
#include <string_view>

#include "doctor/report.h"
#include "launch/environment.h"

namespace rueda::doctor {

Section examine_settings(const launch::Variables& environment);

// The known name that takes the fewest single-letter edits to become; "" when even that is another word.
std::string nearest_setting(std::string_view unknown);

}  // namespace rueda::doctor
