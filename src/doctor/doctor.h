#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "doctor/report.h"

namespace rueda::doctor {

// What is looked at now, for somebody who waits.
using Progress = std::function<void(std::string_view what)>;

// Inspects everything. own_path: the path of this program. looks_at_python: also starts Python and imports
// frameworks, which takes seconds.
Report examine(const std::string& own_path, bool looks_at_python, const Progress& tell);

}  // namespace rueda::doctor
