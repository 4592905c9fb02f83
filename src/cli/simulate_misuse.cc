#include "cli/simulate_misuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace rueda::cli {
namespace {

struct Pair {
  const char *one, *other, *why;
};
constexpr const char* kGoesOn = "which goes on with what the earlier validation was asked";
constexpr std::array kExclusive = std::to_array<Pair>(
    {{"--tune", "--no-plans", "what is tuned are the buckets of plans"},
     {"--tune", "--cross-step", "steps that cross have no plans, whose buckets are tuned"},
     {"--tune", "--bucket", "which says what the buckets are, and leaves nothing to tune"},
     {"--bucket", "--no-plans", "which says how large the buckets of plans are"},
     {"--costs", "--write-costs", "nothing is fitted then"},
     {"--quick", "--measured", kGoesOn},
     {"--repeats", "--measured", kGoesOn},
     {"--program", "--measured", kGoesOn}});
constexpr std::array kOfValidation = std::to_array<std::string_view>(
    {"--validate", "--quick", "--repeats", "--measured", "--program", "--write-costs"});

// Nothing is replaced where there is no regular file, /dev/null for example.
bool is_one_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(a, error) && !fs::is_regular_file(a, error)) return false;
  const auto whole = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(path, error), error);
  };
  const fs::path first = whole(a);
  return a == b || (!first.empty() && first == whole(b));
}

}  // namespace

std::string misplaced(const CLI::App& app) {
  const bool calibrates = app.count("--calibrate") > 0, validates = app.count("--validate") > 0;
  const char* const alone = calibrates ? "--calibrate" : "--validate";
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == alone) continue;
    const bool is_of_it = std::ranges::find(kOfValidation, name) != kOfValidation.end();
    if (!calibrates && !validates && is_of_it)
      return fmt::format("{} is for --validate; add that, or leave it out", name);
    if (calibrates || (validates && !is_of_it && name != "--costs" && name != "--json"))
      return fmt::format("{} measures on this machine, and has no use for {}; leave it out", alone, name);
  }
  for (const Pair& pair : kExclusive)
    if (app.count(pair.one) > 0 && app.count(pair.other) > 0)
      return fmt::format("{} cannot be beside {}: {}; leave one of them out", pair.one, pair.other, pair.why);
  return {};
}

std::string clash_of(const std::vector<Output>& outputs) {
  for (const Output& one : outputs) {
    if (one.path.empty()) continue;
    if (one.path == "-" && one.option != std::string_view("--json"))
      return fmt::format("{} - names no file, and only --json prints; name a file", one.option);
    for (const Output& other : outputs)
      if (&other < &one && one.path != "-" && !other.path.empty() && is_one_file(one.path, other.path))
        return fmt::format("{} and {} both write {}; name two files", other.option, one.option, one.path);
  }
  return {};
}

}  // namespace rueda::cli
