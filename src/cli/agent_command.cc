#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cli/parse_error.h"
#include "launch/agent.h"
#include "launch/agent_call.h"
#include "rueda/base/limits.h"
#include "rueda/base/release.h"
#include "rueda/base/socket.h"

namespace rueda::cli {
namespace {

int fail(const std::string& why, int status) {
  fmt::print(stderr, "rueda agent: {}\n", why);
  return status;
}

std::string own_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 200 && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
}

}  // namespace

int agent_command(const Arguments& arguments) {
  CLI::App app("Offers this host to an elastic job that accepts agents (rueda run --accept-agents)",
               "rueda agent");
  std::string url, secret_file;
  launch::Joining joining{.name = own_name()};
  double timeout_s = 60;
  app.add_option("--join", url, "where the launcher listens: tcp://10.0.0.1:5000, as it prints it")
      ->required();
  app.add_option("--secret-file", secret_file, "the file with the job's secret, which others may not read")
      ->required();
  app.add_option("--slots", joining.slots, "ranks that may run here (1)")->check(CLI::Range(1, kMaxRanks));
  app.add_option("--name", joining.name, "the name of this host in the job (its host name)");
  app.add_option("--timeout", timeout_s, "seconds to wait until the launcher listens (60)")
      ->check(number_from(0, 1e8));
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    put(app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    return fail(sentence_of(error, app, "rueda agent"), kUsageError);
  }
  if (!is_name(joining.name))
    return fail(fmt::format("--name {} is refused: it has letters, digits, dots, - and _ only", joining.name),
                kUsageError);
  Result<Secret> secret = read_secret_file(secret_file);
  if (!secret.is_ok()) return fail(secret.status().why, kUsageError);
  const auto say = [](const std::string& text) { fmt::print(stderr, "rueda agent: {}\n", text); };
  Result<UniqueFd> fd =
      launch::call_launcher(url, secret.value(), Deadline::after(nanos(timeout_s, kSecond)), say);
  if (!fd.is_ok()) return fail(fd.status().why, 1);
  joining.secret = std::move(secret.value().key);
  joining.launcher_address = peer_address(fd.value().get()).ip();
  joining.own_address = own_address(fd.value().get()).ip();
  // An agent speaks with its launcher over these two, whatever they are.
  if (dup2(fd.value().get(), STDIN_FILENO) < 0 || dup2(fd.value().get(), STDOUT_FILENO) < 0)
    return fail("cannot use the connection to the launcher", 1);
  fd.value().reset();
  return launch::agent_main(kRelease, joining);
}

}  // namespace rueda::cli
