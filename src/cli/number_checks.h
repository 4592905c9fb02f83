// What a number option accepts. CLI11's own ranges let nan pass, which is neither below nor above anything.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace rueda::cli {

// No nan, no inf.
CLI::Validator number_from(double least, double most);
// Neither a sign where none may be, nor more digits than fit.
CLI::Validator whole_number(uint64_t least, uint64_t most);

}  // namespace rueda::cli
