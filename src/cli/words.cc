#include "cli/words.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

namespace rueda::cli {
namespace {

// An assignment `NAME=value`, which a shell accepts before a command.
bool is_assignment(std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  const auto fits = [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return name.size() < word.size() && !name.empty() && std::ranges::all_of(name, fits) &&
         std::isdigit(static_cast<unsigned char>(name.front())) == 0;
}

}  // namespace

std::string normalised(const std::string& word) {
  const std::string_view name = std::string_view(word).substr(0, word.find('='));
  if (name == "-n") return "--np" + word.substr(name.size());
  for (const std::string_view known : {"-np", "-hostfile", "-prefix-timestamp"})
    if (name == known) return "-" + word;
  return name == "-cb" ? "--check-build" : word;
}

std::vector<std::string> for_parser(std::span<const std::string> words) {
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  for (std::string& word : reversed)
    if (word == "-np" || word.starts_with("-np=")) word.insert(0, "-");
  return reversed;
}

std::vector<std::string> with_assignments(std::vector<std::string> command) {
  if (std::ranges::all_of(command, is_assignment)) return {};
  if (is_assignment(command.front())) command.insert(command.begin(), "env");
  return command;
}

std::vector<std::pair<std::string, std::string>> assignments_of(const std::vector<std::string>& command) {
  std::vector<std::pair<std::string, std::string>> found;
  if (command.empty() || command.front() != "env") return found;
  for (size_t i = 1; i < command.size() && is_assignment(command[i]); ++i) {
    const size_t equals = command[i].find('=');
    found.emplace_back(command[i].substr(0, equals), command[i].substr(equals + 1));
  }
  return found;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace rueda::cli
