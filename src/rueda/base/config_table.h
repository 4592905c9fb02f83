// One typed table parses, validates, prints and documents every setting. A bad value is refused, and the
// message names its variable. RUEDA_X is read first, then the HOROVOD_ name, so that existing job
// scripts keep working.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rueda/base/config.h"
#include "rueda/base/status.h"

namespace rueda {

std::span<const ConfigEntry> config_table();

// Reads variables with get_env (nullptr = unset). The error names the variable, its value and
// the allowed range.
Result<Config> parse_config(const std::function<const char*(const char*)>& get_env);

// One sentence for each setting that parse_config would refuse.
std::vector<std::string> refused_settings(const std::function<const char*(const char*)>& get_env);

// One sentence for each Horovod setting that is set but has no effect in this version, with the reason. Log
// them once, on rank 0.
std::vector<std::string> ignored_settings(const std::function<const char*(const char*)>& get_env);

// The whole table as a Markdown page, which is docs/settings.md.
std::string config_markdown();

}  // namespace rueda
