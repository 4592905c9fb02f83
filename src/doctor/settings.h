// Which RUEDA_ and HOROVOD_ variables are set here, and what they do. Pure.
#pragma once

#include "doctor/report.h"
#include "launch/environment.h"

namespace rueda::doctor {

Section examine_settings(const launch::Variables& environment);

}  // namespace rueda::doctor
