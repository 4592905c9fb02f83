#include "rueda/store/ancestry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "rueda/base/process.h"
#include "rueda/base/unique_fd.h"

namespace rueda::store {
namespace {

constexpr size_t kMaxProcesses = 64;       // a deeper chain would be a fault of its own
constexpr size_t kMaxFileBytes = 4 << 20;  // Linux bounds arguments and variables by a quarter of the stack

// Empty if the file cannot be read, or if a file of variables is another user's.
std::optional<std::string> read_file_of(pid_t pid, const char* name, bool must_be_own) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!file.is_open() || fstat(file.get(), &facts) != 0) return std::nullopt;
  if (must_be_own && facts.st_uid != geteuid()) return std::nullopt;
  std::string text;
  std::array<char, 16384> part{};
  while (text.size() < kMaxFileBytes) {
    const ssize_t count = read(file.get(), part.data(), part.size());
    if (count < 0) return std::nullopt;
    if (count == 0) return text;
    text.append(part.data(), static_cast<size_t>(count));
  }
  return std::nullopt;
}

// "A=1\0B=2\0". The first of two equal names counts, as for getenv.
std::map<std::string, std::string, std::less<>> variables_in(std::string_view text) {
  std::map<std::string, std::string, std::less<>> variables;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find('\0'));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    const size_t equals = one.find('=');
    if (equals != std::string_view::npos) variables.emplace(one.substr(0, equals), one.substr(equals + 1));
  }
  return variables;
}

}  // namespace

Ancestry read_ancestry() {
  Ancestry ancestry;
  for (pid_t pid = getpid(); pid > 0 && ancestry.size() < kMaxProcesses;) {
    const std::optional<std::string> stat = read_file_of(pid, "stat", false);
    if (!stat) break;
    Process process;
    const ProcessLook look = parse_process_stat(*stat);
    process.identity = std::to_string(pid) + "-" + std::to_string(look.began);
    process.program = read_file_of(pid, "comm", false).value_or("");
    if (process.program.ends_with('\n')) process.program.pop_back();
    if (const auto text = read_file_of(pid, "environ", true)) process.variables = variables_in(*text);
    ancestry.push_back(std::move(process));
    pid = look.parent;
  }
  return ancestry;
}

}  // namespace rueda::store
