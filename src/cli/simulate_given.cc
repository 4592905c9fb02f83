#include "cli/simulate_given.h"

namespace rueda::cli {

std::string command_text(const Arguments& arguments) {
  std::string text = "rueda simulate";
  for (const std::string& word : arguments) {
    const bool is_plain =
        !word.empty() && word.find_first_of(" \t\n\"'\\$`*?;&|<>(){}[]#~!") == std::string::npos;
    text += ' ';
    if (is_plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

std::vector<simulate::GivenOption> given_options(const CLI::App& app) {
  std::vector<simulate::GivenOption> given;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "--json" || name == "--html") continue;
    const bool is_flag = option->get_expected_max() == 0;
    given.push_back({.name = name.substr(name.find_first_not_of('-')),
                     .value = is_flag ? "" : option->results().front()});
  }
  return given;
}

}  // namespace rueda::cli
