#include "doctor/doctor.h"

#include <unistd.h>

#include <optional>

#include "doctor/fabric.h"
#include "doctor/front_ends.h"
#include "doctor/hardware.h"
#include "doctor/library.h"
#include "doctor/machine.h"
#include "doctor/settings.h"
#include "doctor/transports.h"
#include "rueda/base/config_table.h"

namespace rueda::doctor {

Report examine(const std::string& own_path, bool looks_at_python, const Progress& tell) {
  const auto config = parse_config([](const char* name) { return static_cast<const char*>(getenv(name)); });
  // Frameworks take seconds to import, so they are begun first and awaited last. A setting that cannot be
  // read makes every front end fail in the same way, so it is reported once.
  std::optional<FrontEnds> front_ends;
  if (looks_at_python && config.is_ok()) {
    tell("Python looks for frameworks");
    front_ends.emplace(own_path);
  }
  tell("the library, settings and hardware");
  Report report;
  report.push_back(examine_library(own_path));
  report.push_back(examine_settings(launch::forwarded_environment(environ, false)));
  report.push_back(examine_processor());
  const std::string memory_fault = shared_memory_fault();
  report.push_back(examine_memory(memory_fault));
  report.push_back(examine_network(config.is_ok() ? config.value().interface : ""));
  report.push_back(examine_hardware(config.is_ok() ? config.value().interface : ""));
  if (config.is_ok())
    report.push_back(examine_fabric(usable_transports(config.value().transports, memory_fault)));
  const bool has_library = !is_broken({report.front()});
  if (config.is_ok() && has_library) {
    tell("two ranks try each transport");
    report.push_back(examine_transports(own_path, config.value().transports, memory_fault));
  }
  tell("launchers and MPI");
  report.push_back(examine_launchers());
  if (front_ends) report.push_back(front_ends->finish(tell));
  return report;
}

}  // namespace rueda::doctor
