// What an agent tells the user by itself: on its stderr, which the launcher shows.
#pragma once

#include <string_view>

namespace rueda::launch {

void warn_as_agent(std::string_view what);

}  // namespace rueda::launch
