// Collects the facts of this host: an effect that changes nothing.
#pragma once

#include <string>

#include "preflight/host_facts.h"

namespace rueda::preflight {

// host: the name to report. own_path: of this program. Takes as long as Python needs to start.
HostFacts inspect_host(const std::string& host, const std::string& own_path);

}  // namespace rueda::preflight
