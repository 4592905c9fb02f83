// Which names of RUEDA_ and HOROVOD_ variables mean something, and which of them a user may have meant. Pure.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rueda {

// Settings, and variables that other parts of rueda and its launchers read.
std::set<std::string, std::less<>> known_settings();

// The known name that is fewest single-letter edits away; "" if even that one differs too much.
std::string nearest_setting(std::string_view unknown);

// What is said about a name that is not known. nearest: "" if there is none.
std::string unknown_setting(const std::string& name, const std::string& nearest);

// One sentence for each RUEDA_ variable (name, value) that is no setting but whose name is nearly that of
// one.
std::vector<std::string> misspelt_settings(std::span<const std::pair<std::string, std::string>> environment);

}  // namespace rueda
