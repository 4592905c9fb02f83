// The words of a command line, before they are options. Pure.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rueda::cli {

// horovodrun has long option names with a single dash, and accepts -n as short for the only one that
// begins with it.
std::string normalised(const std::string& word);

// As CLI11 parses words: from last to first, and with -np as the long option that it stands for.
std::vector<std::string> for_parser(std::span<const std::string> words);

// horovodrun passes the command to a shell. `env` understands the assignments that may precede it.
std::vector<std::string> with_assignments(std::vector<std::string> command);

// Names and values of the assignments that precede such a command.
std::vector<std::pair<std::string, std::string>> assignments_of(const std::vector<std::string>& command);

// The words between blanks.
std::vector<std::string> words_of(const std::string& text);

}  // namespace rueda::cli
