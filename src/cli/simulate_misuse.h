// Options of rueda simulate that do not go together. Each function returns a sentence; "" = all is well.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace rueda::cli {

// An option that does nothing beside --validate, or without it, or beside another one.
std::string misplaced(const CLI::App& app);

// A file that is written. path "" = none, "-" = stdout.
struct Output {
  const char* option;
  std::string path;
};
// Two results in one file, or a page for browsers on the terminal.
std::string clash_of(const std::vector<Output>& outputs);

}  // namespace rueda::cli
