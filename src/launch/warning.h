// What an agent or a reaper tells the user by itself: on its stderr, which whoever has started it shows.
#pragma once

#include <string_view>

namespace rueda::launch {

// "rueda COMMAND: WHAT".
void warn(std::string_view command, std::string_view what);

}  // namespace rueda::launch
