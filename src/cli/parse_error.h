// What is wrong with a command line, as a sentence that says what to do.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rueda::cli {

// "--hostfil is no option of rueda run; did you mean --hostfile? rueda run --help lists all". known: the
// names from which the nearest one is offered. what: "option", "command".
std::string unknown_word(std::string_view word, std::string_view what, std::string_view command,
                         std::span<const std::string> known);

// What CLI11 finds wrong. command: "rueda run", whose --help lists the options. others: options that it has
// besides those of the app.
std::string sentence_of(const CLI::ParseError& error, const CLI::App& app, std::string_view command,
                        std::span<const std::string> others = {});

}  // namespace rueda::cli
