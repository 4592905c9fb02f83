// What rueda simulate was asked, to be told beside what it says.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/words.h"
#include "simulate/prediction.h"

namespace rueda::cli {

// As it can be typed again.
std::string command_text(const Arguments& arguments);
// Those that were typed, in the order of the help, without those that only say where results go.
std::vector<simulate::GivenOption> given_options(const CLI::App& app);

}  // namespace rueda::cli
