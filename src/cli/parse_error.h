// What CLI11 finds wrong with a command line, as a sentence that says what to do.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace rueda::cli {

// command: "rueda run", whose --help lists the options.
inline std::string sentence_of(const CLI::ParseError& error, std::string_view command) {
  const std::string text = error.what();
  const std::string kind = error.get_name();
  const size_t colon = text.find(": ");
  std::string sentence = text;
  if (colon != std::string::npos) {
    const std::string option = text.substr(0, colon);  // "--np: 1 required INT missing"
    const std::string given = text.substr(colon + 2);  // "Could not convert: --np = x"
    if (kind == "ArgumentMismatch" && text.ends_with(" missing")) sentence = option + " needs a value";
    if (kind == "ConversionError") sentence = given + " cannot be read";
  }
  return fmt::format("{}; see {} --help", sentence, command);
}

}  // namespace rueda::cli
