#include "cli/simulate_misuse.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace rueda::cli {
namespace {

struct Pair {
  const char *one, *other, *why;
};
constexpr std::array<Pair, 2> kExclusive = {
    {{"--tune", "--no-plans", "what is tuned are the buckets of plans"},
     {"--tune", "--bucket", "which says what the buckets are, and leaves nothing to tune"}}};

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
  const bool validates = app.count("--validate") > 0;
  for (const char* name : {"--quick", "--repeats", "--measured", "--program", "--write-costs"})
    if (!validates && app.count(name) > 0)
      return fmt::format("{} is for --validate; add that, or leave it out", name);
  for (const char* name : {"--cluster", "--hosts", "--ranks", "--model", "--html", "--costs"})
    if (validates && app.count(name) > 0)
      return fmt::format("--validate measures on this machine, and has no use for {}; leave it out", name);
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
