#include "doctor/doctor.h"

#include <unistd.h>

#include "doctor/fabric.h"
#include "doctor/front_ends.h"
#include "doctor/hardware.h"
#include "doctor/library.h"
#include "doctor/machine.h"
#include "doctor/settings.h"
#include "doctor/transports.h"
#include "rueda/base/config.h"

namespace rueda::doctor {

Report examine(const std::string& own_path, bool looks_at_python) {
  Report report;
  report.push_back(examine_library(own_path));
  report.push_back(examine_settings(launch::forwarded_environment(environ, false)));
  report.push_back(examine_processor());
  report.push_back(examine_memory());
  const auto config = parse_config([](const char* name) { return static_cast<const char*>(getenv(name)); });
  report.push_back(examine_network(config.is_ok() ? config.value().interface : ""));
  report.push_back(examine_hardware(config.is_ok() ? config.value().interface : ""));
  if (config.is_ok()) report.push_back(examine_fabric(config.value().transports));
  const bool has_library = !is_broken({report.front()});
  if (config.is_ok() && has_library)
    report.push_back(examine_transports(own_path, config.value().transports));
  report.push_back(examine_launchers());
  // A setting that cannot be read makes every front end fail in the same way, so it is reported once.
  if (looks_at_python && config.is_ok()) report.push_back(examine_front_ends(own_path));
  return report;
}

}  // namespace rueda::doctor
