#include "cli/parse_error.h"

#include <fmt/format.h>

#include <algorithm>

#include "rueda/base/nearest.h"

namespace rueda::cli {
namespace {

// Those that help shows, also of the subcommand that was given.
void add_options(const CLI::App& app, std::vector<std::string>& names) {
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      for (const std::string& name : option->get_fnames())
        if (std::ranges::find(names, "--" + name) == names.end() && name.size() > 1)
          names.push_back("--" + name);
    }
  for (const CLI::App* subcommand : app.get_subcommands()) add_options(*subcommand, names);
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(subcommand->get_name());
  return names;
}

// What the app could not use; options first, because other words may only be their values.
std::string unexpected(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(true);
  const auto option = std::ranges::find_if(words, [](const auto& word) { return word.starts_with('-'); });
  if (option != words.end()) return option->substr(0, option->find('='));
  return words.empty() ? std::string() : words.front();
}

}  // namespace

std::string unknown_word(std::string_view word, std::string_view what, std::string_view command,
                         std::span<const std::string> known) {
  const std::string nearest = nearest_word(word, known);
  const std::string hint = nearest.empty() ? std::string() : fmt::format(" did you mean {}?", nearest);
  return fmt::format("{} is no {} of {};{} {} --help lists all", word, what, command, hint, command);
}

std::string sentence_of(const CLI::ParseError& error, const CLI::App& app, std::string_view command,
                        std::span<const std::string> others) {
  const std::string text = error.what();
  const std::string kind = error.get_name();
  const std::string word = unexpected(app);
  if (word.starts_with('-')) {
    std::vector<std::string> known(others.begin(), others.end());
    add_options(app, known);
    return unknown_word(word, "option", command, known);
  }
  const std::vector<std::string> commands = commands_of(app);
  if (kind == "RequiredError" && !word.empty() && !commands.empty() && app.get_subcommands().empty())
    return unknown_word(word, "command", command, commands);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError))  // its name is that of the app
    return fmt::format("{} was not expected; see {} --help", word, command);
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
