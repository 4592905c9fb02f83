// Warnings of an agent or a reaper, on its stderr. The process that has started it shows them to the user.
#pragma once

#include <string_view>

namespace rueda::launch {

// "rueda COMMAND: WHAT".
void warn(std::string_view command, std::string_view what);

}  // namespace rueda::launch
